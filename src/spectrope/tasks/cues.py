"""Controls of tasks on sequences: the same labels for sequences without order, or without content."""

from typing import Literal, get_args

import numpy as np
from jaxtyping import Int

from spectrope.core import indexed_integers, require

FINE = 2**31  # Values of a random number by which tokens are ordered, or that is a fraction of it.
Cue = Literal["both", "content", "position"]


def require_cue(config: object, cue: str) -> None:
    """Refuse an unknown cue.

    Raises:
        ConfigError: If it is none of the three.
    """
    require(cue in get_args(Cue), config, "cue", "'both', 'content' or 'position'")


def with_cue(
    tokens: Int[np.ndarray, "n t"],
    lengths: Int[np.ndarray, " n"],
    cue: Cue,
    seed: int,
    stream: str,
    index: np.ndarray,
    n_tokens: int,
) -> Int[np.ndarray, "n t"]:
    """Tokens that carry only content or only position.

    Args:
        tokens: Numbers of tokens from 0, of which the first `lengths` count.
        lengths: Tokens of each sequence.
        cue: "both" leaves them unchanged; "content" shuffles them; "position" adds a uniform random number to
            each, modulo the number of tokens, so that they are independent of the label.
        seed: The data set's seed.
        stream: Name of the task.
        index: Numbers of the examples.
        n_tokens: Number of different tokens.
    """
    if cue == "content":
        keys = indexed_integers(seed, f"{stream}/order", index, tokens.shape[1], FINE)
        keys[np.arange(tokens.shape[1]) >= lengths[:, None]] = FINE
        return np.take_along_axis(tokens, keys.argsort(1, kind="stable"), 1)
    if cue == "position":
        return (
            tokens + indexed_integers(seed, f"{stream}/blind", index, tokens.shape[1], n_tokens)
        ) % n_tokens
    return tokens
