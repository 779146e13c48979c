"""How llama.cpp applies positions in each architecture: rules in its code that GGUF files do not contain."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from spectrope.checkpoints.gguf.file import GGUFFile
from spectrope.encodings import Pairing

RELEASE = "86a2835"  # Commit of llama.cpp that `python -m campaigns.llama_cpp` compares verdicts with.
Rotates = Literal["every layer", "three of four", "windows"]


@dataclass(frozen=True)
class Rules:
    """What llama.cpp does with one architecture.

    Args:
        pairing: Which rows of the projections it turns together: adjacent ones, or halves of a head.
        factors: Whether it divides angles by the tensor `rope_freqs`, or by LongRoPE's factors.
        rotates: Which layers it rotates; "three of four" leaves out layers 3, 7, 11, ...
        windows: Period of layers with a sliding window, whose last one has none; 0 where there are none.
        optional: Whether layers have windows only where the file states a width above 0.
        yarn: Whether it reads YaRN's ramp ends from the file; it takes 32 and 1 otherwise.
        own_base: Whether layers with a window have a base of their own, `rope.freq_base_swa`.
        local_base: That base where the file states none; None takes that of the other layers.
        local_unscaled: Whether layers with a window leave out the scaling.
        scaled: Whether the factor on dot products is read from the file.
        by_embedding: Number of layers of the size of model whose factor on dot products has the width of the
            embedding over the number of heads in place of the width of a head; 0 where there is none.
        heats: Whether queries grow with the position where the file states `attention.temperature_scale`.
    """

    pairing: Pairing
    factors: bool = False
    rotates: Rotates = "every layer"
    windows: int = 0
    optional: bool = False
    yarn: bool = False
    own_base: bool = False
    local_base: float | None = None
    local_unscaled: bool = False
    scaled: bool = False
    by_embedding: int = 0
    heats: bool = False

    def has_window(self, file: GGUFFile, layer: int) -> bool:
        """Whether a layer attends through a sliding window."""
        if not self.windows or (self.optional and not file.get("attention.sliding_window")):
            return False
        pattern = file.get("attention.sliding_window_pattern")
        period = pattern if isinstance(pattern, int) and not isinstance(pattern, bool) else self.windows
        return period == 0 or layer % period < period - 1

    def turns(self, file: GGUFFile, layer: int) -> bool:
        """Whether a layer is rotated."""
        return TURNS[self.rotates](self, file, layer)


TURNS: dict[str, Callable[[Rules, GGUFFile, int], bool]] = {
    "every layer": lambda rules, file, layer: True,
    "three of four": lambda rules, file, layer: (layer + 1) % 4 != 0,
    "windows": lambda rules, file, layer: rules.has_window(file, layer),
}

ADJACENT, HALVES = Rules("adjacent"), Rules("halves")
RULES: dict[str, Rules] = {
    "apertus": Rules("halves", factors=True),
    "arcee": Rules("adjacent", factors=True),
    "cohere2": Rules("adjacent", factors=True, rotates="windows", windows=4),
    "command-r": ADJACENT,
    "ernie4_5": ADJACENT,
    "exaone": Rules("halves", factors=True),
    "gemma": HALVES,
    "gemma2": Rules("halves", windows=2, own_base=True, by_embedding=46),
    "gemma3": Rules(
        "halves",
        windows=6,
        optional=True,
        own_base=True,
        local_base=10000.0,
        local_unscaled=True,
        by_embedding=62,
    ),
    "glm4": ADJACENT,
    "gpt-oss": Rules("halves", windows=2, own_base=True),
    "granite": Rules("adjacent", factors=True, scaled=True),
    "internlm2": ADJACENT,
    "llama": Rules("adjacent", factors=True),
    "mistral3": Rules("adjacent", factors=True, yarn=True, heats=True),
    "nemotron": HALVES,
    "olmo": ADJACENT,
    "olmo2": Rules("halves", windows=4, optional=True, local_unscaled=True),
    "phi3": Rules("halves", factors=True),
    "qwen2": HALVES,
    "qwen2moe": HALVES,
    "qwen2vl": HALVES,
    "qwen3": HALVES,
    "qwen3moe": HALVES,
    "seed_oss": HALVES,
    "smollm3": Rules("adjacent", rotates="three of four"),
    "starcoder2": HALVES,
}
SECTIONED = frozenset({"qwen2vl"})  # Architectures that read rope.dimension_sections.
WHOLE_HEADS = frozenset({"llama"})  # Which are refused unless all coordinates of a head turn.
