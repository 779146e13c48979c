"""Token sequences with targets, on which language models are scored."""

from dataclasses import dataclass, fields, replace

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from spectrope.core import ConfigError, numpy_stream

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
        return replace(self, **{field.name: getattr(self, field.name)[index] for field in fields(self)})

    def trimmed(self) -> "Sequences":
        """These without the columns that are padding in every sequence."""
        width = int(self.lengths.max())
        return replace(self, ids=self.ids[:, :width], targets=self.targets[:, :width])

    @property
    def width(self) -> int:
        """Tokens of a row, padding among them."""
        return self.ids.shape[1]

    @property
    def ragged(self) -> bool:
        """Whether lengths differ."""
        return len(self.lengths.unique()) > 1

    @property
    def real(self) -> Bool[Tensor, "n t"]:
        """Which places hold tokens."""
        return _before(self.lengths, self.ids.shape[1])

    def places(self, role: str) -> Bool[Tensor, "n t"]:
        """Which places hold tokens where a stack of layers runs; there is one stack."""
        return self.real

    def tokens(self, role: str) -> Int[Tensor, "n t"]:
        """What stands there."""
        return self.ids

    def inputs(self, copies: int) -> dict[str, Tensor]:
        """Arguments of a language model's forward call for several copies of these."""
        return _arguments("", self.ids, self.real, copies)

    @property
    def scored(self) -> Bool[Tensor, "n t"]:
        """Which places have a target."""
        return self.targets != UNSCORED

    def to(self, device: torch.device) -> "Sequences":
        """These on another device."""
        return replace(self, **{field.name: getattr(self, field.name).to(device) for field in fields(self)})


@dataclass(frozen=True)
class Continuations(Sequences):
    """Sequences that a decoder continues after an encoder has read their beginnings.

    `ids` are what enters the decoder: the token before each place, with the start token first.

    Args:
        read: Tokens that the encoder reads, with shape (n, s).
        read_lengths: How many of them come before the padding, with shape (n,).
    """

    read: Int[Tensor, "n s"]
    read_lengths: Int[Tensor, " n"]

    def trimmed(self) -> "Continuations":
        """These without the columns that are padding in every sequence."""
        shorter = super().trimmed()
        assert isinstance(shorter, Continuations)
        return replace(shorter, read=self.read[:, : int(self.read_lengths.max())])

    @property
    def width(self) -> int:
        """Tokens of a row, padding among them, in both stacks."""
        return self.ids.shape[1] + self.read.shape[1]

    @property
    def ragged(self) -> bool:
        """Whether lengths differ, in either stack."""
        return super().ragged or len(self.read_lengths.unique()) > 1

    def places(self, role: str) -> Bool[Tensor, "n t"]:
        """Which places hold tokens in the stack of a role."""
        return _before(self.read_lengths, self.read.shape[1]) if role == "encoder" else self.real

    def tokens(self, role: str) -> Int[Tensor, "n t"]:
        """What stands in the stack of a role."""
        return self.read if role == "encoder" else self.ids

    def inputs(self, copies: int) -> dict[str, Tensor]:
        """Arguments of the model's forward call for several copies of these."""
        both = _arguments("", self.read, self.places("encoder"), copies)
        return both | _arguments("decoder_", self.ids, self.real, copies)


def _before(lengths: Int[Tensor, " n"], width: int) -> Bool[Tensor, "n width"]:
    return torch.arange(width, device=lengths.device) < lengths[:, None]


def _arguments(
    side: str, ids: Int[Tensor, "n t"], real: Bool[Tensor, "n t"], copies: int
) -> dict[str, Tensor]:
    """Tokens, and a mask where there is padding."""
    given = {f"{side}input_ids": ids.repeat(copies, 1)}
    if not bool(real.all()):
        given[f"{side}attention_mask"] = real.long().repeat(copies, 1)
    return given


def predicting(
    ids: Int[Tensor, "n t"],
    wanted: Bool[Tensor, "n t"],
    lengths: Int[Tensor, " n"],
    mask: int | None = None,
    seed: int = 0,
) -> Sequences:
    """Sequences in which the selected tokens are predicted.

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
    _check_asked(wanted)
    if mask is None:
        targets = ids.masked_fill(~wanted, UNSCORED).roll(-1, 1)
        return Sequences(ids, targets, lengths)
    draws = torch.from_numpy(numpy_stream(seed, "hidden tokens").random(ids.shape)).masked_fill(~wanted, 2.0)
    hidden = (draws < MASKED_SHARE) | (draws == draws.amin(1, keepdim=True))
    return Sequences(ids.masked_fill(hidden, mask), ids.masked_fill(~hidden, UNSCORED), lengths)


def continuing(
    ids: Int[Tensor, "n t"], wanted: Bool[Tensor, "n t"], lengths: Int[Tensor, " n"], start: int
) -> Continuations:
    """Sequences of which an encoder reads the first half and a decoder is asked for the second.

    Args:
        ids: Token ids.
        wanted: Which of them may be asked for; those in second halves are.
        lengths: Tokens before the padding; of odd numbers the encoder reads the larger half.
        start: Id that the decoder starts with.

    Raises:
        ConfigError: If no token of a second half is wanted.
    """
    read_lengths = (lengths + 1) // 2
    asked_lengths = lengths - read_lengths
    place = (read_lengths[:, None] + torch.arange(int(asked_lengths.max()))).clamp(max=ids.shape[1] - 1)
    later, asked = ids.gather(1, place), wanted.gather(1, place) & _before(asked_lengths, place.shape[1])
    _check_asked(asked)
    entering = torch.cat([torch.full_like(later[:, :1], start), later[:, :-1]], 1)
    read = ids[:, : int(read_lengths.max())]
    return Continuations(entering, later.masked_fill(~asked, UNSCORED), asked_lengths, read, read_lengths)


def _check_asked(wanted: Bool[Tensor, "n t"]) -> None:
    if not bool(wanted.any(1).all()):
        raise ConfigError("every sequence must hold a token to predict; one is too short.")


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
