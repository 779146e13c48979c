"""Named combinations of an encoding with a schedule or a position rule."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Named:
    """A named combination.

    Args:
        spec: What the name stands for, as `experiment` reads it.
        summary: What it does, in a line.
        reference: Its source.
    """

    spec: str
    summary: str
    reference: str


NAMED: Mapping[str, Named] = {
    "shape": Named(
        "sinusoidal@shifted",
        "Shifts the positions of training sequences at random.",
        "SHAPE: Shifted Absolute Position Embedding for Transformers (Kiyono et al., 2021).",
    ),
    "randomised": Named(
        "sinusoidal@random_subset",
        "Draws training positions from a longer range.",
        "Randomized Positional Encodings Boost Length Generalization of Transformers (Ruoss et al., 2023).",
    ),
    "p_rope": Named(
        "rope:proportional",
        "Sets the lowest frequencies of RoPE to zero.",
        "Round and Round We Go! What Makes Rotary Positional Encodings Useful? (Barbero et al., 2024).",
    ),
}


def combination(name: str) -> Named | None:
    """The combination of that name, without regard to case, hyphens and underscores, if there is one."""
    return next((one for known, one in NAMED.items() if _folded(known) == _folded(name)), None)


def _folded(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")
