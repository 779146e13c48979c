"""How llama.cpp applies positions in each architecture: rules in its code that GGUF files do not contain."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from spectrope.checkpoints.gguf.file import GGUFFile
from spectrope.encodings import Pairing

RELEASE = "86a2835"  # Commit of llama.cpp that `python -m campaigns.llama_cpp` compares verdicts with.
CONFIRMED = frozenset(  # Architectures of the files that it compares; the rules of others were only read.
    (
        "cohere2",
        "gemma2",
        "glm4",
        "granite",
        "llama",
        "mistral3",
        "olmo2",
        "phi3",
        "qwen2",
        "qwen3",
        "smollm3",
    )
)
FREQS, LONG, SHORT = "rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"
Rotates = Literal["every layer", "three of four", "windows"]
LoadedFactors = Literal["none", "freqs", "by type", "long and short"]
Sections = Literal["unread", "required", "optional"]


@dataclass(frozen=True)
class Rules:
    """What llama.cpp does with one architecture.

    Args:
        pairing: Which rows of the projections it turns together: adjacent ones, or halves of a head.
        factors: Which tensors it divides angles by: `rope_freqs`, LongRoPE's long and short factors, or these
            where `rope.scaling.type` is "longrope" and `rope_freqs` elsewhere. It refuses files with others.
        rotates: Which layers it rotates; "three of four" leaves out layers 3, 7, 11, ...
        windows: Period of layers with a sliding window, whose last one has none; 0 where there are none.
        optional: Whether layers have windows only where the file states a width above 0.
        width: Of windows where the file states none; 0 where it refuses such a file.
        yarn: Whether it reads YaRN's ramp ends from the file; it takes 32 and 1 otherwise.
        own_base: Whether layers with a window have a base of their own, `rope.freq_base_swa`.
        local_base: That base where the file states none; None takes that of the other layers.
        local_unscaled: Whether layers with a window leave out the scaling.
        local_gain: Whether layers with a window apply the factor on queries and keys that the file states.
        scaled: Whether the factor on dot products is read from the file.
        by_embedding: Number of layers of the size of model whose factor on dot products has the width of the
            embedding over the number of heads in place of the width of a head; 0 where there is none.
        heats: Whether queries grow with the position where the file states `attention.temperature_scale`.
        switched: Whether it rotates no layer where the file states `rope.scaling.finetuned` as false.
        sections: Whether it reads `rope.dimension_sections`. Where these are optional, it applies them only
            if the first two are above 0, and then turns halves of a head.
    """

    pairing: Pairing
    factors: LoadedFactors = "none"
    rotates: Rotates = "every layer"
    windows: int = 0
    optional: bool = False
    width: int = 0
    yarn: bool = False
    own_base: bool = False
    local_base: float | None = None
    local_unscaled: bool = False
    local_gain: bool = True
    scaled: bool = False
    by_embedding: int = 0
    heats: bool = False
    switched: bool = False
    sections: Sections = "unread"

    def has_window(self, file: GGUFFile, layer: int) -> bool:
        """Whether a layer attends through a sliding window."""
        if not self.windows or (self.optional and not file.get("attention.sliding_window")):
            return False
        pattern = file.get("attention.sliding_window_pattern")
        period = pattern if isinstance(pattern, int) and not isinstance(pattern, bool) else self.windows
        return period == 0 or layer % period < period - 1

    def turns(self, file: GGUFFile, layer: int) -> bool:
        """Whether a layer is rotated."""
        return not self.switched_off(file) and TURNS[self.rotates](self, file, layer)

    def switched_off(self, file: GGUFFile) -> bool:
        """Whether the file switches off the rotation of every layer."""
        return self.switched and file.get("rope.scaling.finetuned") is False

    def loads(self, file: GGUFFile) -> tuple[str, ...]:
        """Names of the factor tensors that it loads from a file."""
        by_type = LOADED["long and short" if file.get("rope.scaling.type") == "longrope" else "freqs"]
        return by_type if self.factors == "by type" else LOADED[self.factors]


LOADED: dict[LoadedFactors, tuple[str, ...]] = {
    "none": (),
    "freqs": (FREQS,),
    "long and short": (LONG, SHORT),
}
TURNS: dict[str, Callable[[Rules, GGUFFile, int], bool]] = {
    "every layer": lambda rules, file, layer: True,
    "three of four": lambda rules, file, layer: (layer + 1) % 4 != 0,
    "windows": lambda rules, file, layer: rules.has_window(file, layer),
}

ADJACENT, HALVES = Rules("adjacent"), Rules("halves")
RULES: dict[str, Rules] = {
    "apertus": Rules("halves", factors="by type"),
    "arcee": Rules("adjacent", factors="freqs"),
    "cohere2": Rules("adjacent", rotates="windows", windows=4),
    "command-r": ADJACENT,
    "ernie4_5": ADJACENT,
    "exaone": Rules("halves", factors="freqs"),
    "gemma": HALVES,
    "gemma2": Rules("halves", windows=2, width=4096, own_base=True, by_embedding=46),
    "gemma3": Rules(
        "halves",
        windows=6,
        optional=True,
        own_base=True,
        local_base=10000.0,
        local_unscaled=True,
        by_embedding=62,
    ),
    "glm4": Rules("adjacent", sections="optional"),
    "gpt-oss": Rules("halves", windows=2, own_base=True),
    "granite": Rules("adjacent", factors="by type", scaled=True, switched=True),
    "internlm2": ADJACENT,
    "llama": Rules("adjacent", factors="by type"),
    "mistral3": Rules("adjacent", factors="by type", yarn=True, heats=True),
    "nemotron": HALVES,
    "olmo": ADJACENT,
    "olmo2": Rules("halves", windows=4, optional=True, local_unscaled=True, local_gain=False),
    "phi3": Rules("halves", factors="long and short"),
    "qwen2": HALVES,
    "qwen2moe": HALVES,
    "qwen2vl": Rules("halves", sections="required"),
    "qwen3": HALVES,
    "qwen3moe": HALVES,
    "seed_oss": HALVES,
    "smollm3": Rules("adjacent", rotates="three of four"),
    "starcoder2": HALVES,
}
WHOLE_HEADS = frozenset({"llama"})  # Which are refused unless all coordinates of a head turn.


def rules_of(file: GGUFFile) -> Rules | None:
    """The rules for a file; None where those of its architecture are not known here."""
    rules = RULES.get(file.architecture)
    stated = file.get("rope.dimension_sections")
    if rules is None or rules.sections != "optional" or not isinstance(stated, list):
        return rules
    applied = len(stated) > 1 and all(isinstance(size, int) and size > 0 for size in stated[:2])
    return replace(rules, pairing="halves", sections="required") if applied else rules
