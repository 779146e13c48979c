"""Token sequences with a target at some of their places: what a language model is scored on."""

from dataclasses import dataclass, fields

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from spectrope.core.errors import ConfigError
from spectrope.core.random import numpy_stream

UNSCORED = -100  # The target where none is scored; torch's own mark.
MASKED_SHARE = 0.15  # Of the places that could be scored, in models that see both ways.


@dataclass(frozen=True)
class Sequences:
    """Token sequences, padded at the end.

    Args:
        ids: Token ids, with shape (n, t).
        targets: The token that the output at a place should predict, `UNSCORED` where none is, (n, t).
        lengths: Tokens before the padding, with shape (n,).
    """

    ids: Int[Tensor, "n t"]
    targets: Int[Tensor, "n t"]
    lengths: Int[Tensor, " n"]

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: slice | Tensor) -> "Sequences":
        """The sequences that a slice or an index tensor selects."""
        return Sequences(**{field.name: getattr(self, field.name)[index] for field in fields(self)})

    def trimmed(self) -> "Sequences":
        """These without the columns that are padding in every sequence."""
        width = int(self.lengths.max())
        return Sequences(self.ids[:, :width], self.targets[:, :width], self.lengths)

    @property
    def real(self) -> Bool[Tensor, "n t"]:
        """Which places hold tokens."""
        return torch.arange(self.ids.shape[1], device=self.ids.device) < self.lengths[:, None]

    @property
    def scored(self) -> Bool[Tensor, "n t"]:
        """Which places have a target."""
        return self.targets != UNSCORED

    def to(self, device: torch.device) -> "Sequences":
        """These on another device."""
        return Sequences(self.ids.to(device), self.targets.to(device), self.lengths.to(device))


def predicting(
    ids: Int[Tensor, "n t"],
    wanted: Bool[Tensor, "n t"],
    lengths: Int[Tensor, " n"],
    mask: int | None = None,
    seed: int = 0,
) -> Sequences:
    """Sequences whose wanted tokens are to be predicted.

    Args:
        ids: Token ids.
        wanted: Which of them may be asked for.
        lengths: Tokens before the padding.
        mask: Id that hides a token from a model that sees both ways, where 15 % of the wanted ones are asked
            for, at least one of each sequence; None asks a causal model for all of them, one place earlier.
        seed: Of the choice of hidden tokens.

    Raises:
        ConfigError: If a sequence has no token to predict.
    """
    if mask is None:
        wanted = wanted & (torch.arange(ids.shape[1]) > 0)
    if not bool(wanted.any(1).all()):
        raise ConfigError("every sequence must hold a token to predict; one is too short.")
    if mask is None:
        targets = ids.masked_fill(~wanted, UNSCORED).roll(-1, 1)
        return Sequences(ids, targets, lengths)
    draws = torch.from_numpy(numpy_stream(seed, "hidden tokens").random(ids.shape)).masked_fill(~wanted, 2.0)
    hidden = (draws < MASKED_SHARE) | (draws == draws.amin(1, keepdim=True))
    return Sequences(ids.masked_fill(hidden, mask), ids.masked_fill(~hidden, UNSCORED), lengths)


def repeated_tokens(
    tokens: Int[np.ndarray, " m"], n: int, length: int, kind: str, seed: int = 0
) -> tuple[Int[Tensor, "n t"], Bool[Tensor, "n t"]]:
    """Random tokens that repeat, and which of them follow from what came before.

    Args:
        tokens: Ids to draw from.
        n: Sequences.
        length: Tokens of each.
        kind: "induction", where the second half repeats the first, or "distance", where each sequence repeats
            with a period of its own between 2 and half the length.
        seed: Of the tokens.

    Returns:
        Ids, and True from the second token of the first repetition on: the one before has been seen to be
        followed by it.

    Raises:
        ConfigError: If the length is below 8, or there is no such kind.
    """
    if length < 8:
        raise ConfigError(f"repeated tokens need a length of at least 8; got {length}.")
    if kind not in REPEATED:
        raise ConfigError(f"task of a language model must be one of {', '.join(REPEATED)}; got {kind!r}.")
    rng = numpy_stream(seed, kind, length)
    half = length // 2
    periods = np.full(n, half) if kind == "induction" else rng.integers(2, half + 1, n)
    drawn, place = rng.choice(tokens, (n, half)), np.arange(length)[None, :]
    ids = np.take_along_axis(drawn, place % periods[:, None], 1)
    return torch.from_numpy(ids), torch.from_numpy(place > periods[:, None])


REPEATED = ("induction", "distance")


def padded(rows: list[list[int]], padding: int) -> tuple[Int[Tensor, "n t"], Int[Tensor, " n"]]:
    """Rows of tokens as one tensor, and their lengths."""
    lengths = torch.tensor([len(row) for row in rows])
    ids = torch.full((len(rows), int(lengths.max())), padding)
    for place, row in enumerate(rows):
        ids[place, : len(row)] = torch.tensor(row)
    return ids, lengths
