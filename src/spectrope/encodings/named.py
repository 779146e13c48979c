"""Encodings with a name of their own that combine an encoding with a schedule or a position rule."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Named:
    """One of them.

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
        "Shifts training sequences at random.",
        "SHAPE: Shifted Absolute Position Embedding for Transformers (Kiyono et al., 2021).",
    ),
    "randomised": Named(
        "sinusoidal@random_subset",
        "Draws positions of training from a longer range.",
        "Randomized Positional Encodings Boost Length Generalization of Transformers (Ruoss et al., 2023).",
    ),
    "p_rope": Named(
        "rope:proportional",
        "Stops the lowest frequencies of RoPE.",
        "Round and Round We Go! What Makes Rotary Positional Encodings Useful? (Barbero et al., 2024).",
    ),
}
