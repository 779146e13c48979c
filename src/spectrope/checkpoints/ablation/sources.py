"""What takes the place of heads' outputs, gathered over all sequences of a data set."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from spectrope.checkpoints.ablation.rotary import (
    MeanSums,
    RotatedHeads,
    SiteMeans,
    needs_rotation,
    rotary_name,
    rotations_recorded,
)
from spectrope.checkpoints.ablation.subject import CheckpointSubject
from spectrope.checkpoints.sequences import Sequences
from spectrope.core import UnsupportedError
from spectrope.lab import derangement

# Tokens of one batch, copies included: enough to fill the device.
TOKENS = {"cpu": 2**10, "cuda": 2**15}


@dataclass(frozen=True)
class FillSources:
    """What fills need beside the heads that they replace.

    Args:
        means: Mean heads of each site, with shape (f,), for "mean".
        donors: For each sequence the one whose heads replace its own, for "resample".
        site_means: Means of each site's queries, keys and lags, for fills that change rotations.
    """

    means: list[Float[Tensor, " f"]] | None = None
    donors: Sequences | None = None
    site_means: list[SiteMeans] | None = None

    @classmethod
    def over(
        cls,
        subject: CheckpointSubject,
        data: Sequences,
        fills: Collection[str],
        tokens: int | None = None,
        seed: int = 0,
    ) -> "FillSources":
        """What some fills need, with means over all tokens of the data.

        Args:
            subject: The model, in evaluation mode and able to run at the width of the data.
            data: The sequences.
            fills: Names of the fills.
            tokens: Tokens in one batch; None takes what fills the device.
            seed: Pairs sequences where outputs are resampled.

        Raises:
            UnsupportedError: If sequences of different lengths are resampled, or the model does not rotate by
                one module and a fill needs that.
        """
        if "resample" in fills and data.ragged:
            raise UnsupportedError("fill 'resample' needs sequences of one length; give a shorter length.")
        return cls(
            _means(subject, data, tokens) if "mean" in fills else None,
            data[derangement(len(data), seed)] if "resample" in fills else None,
            rotary_means(subject, data, tokens) if any(map(needs_rotation, fills)) else None,
        )

    def at(self, index: Int[Tensor, " b"]) -> "FillSources":
        """The same for some of the sequences."""
        return self if self.donors is None else replace(self, donors=self.donors[index])

    def donated(
        self, subject: CheckpointSubject, index: Int[Tensor, " b"]
    ) -> list[Float[Tensor, "b _ f"]] | None:
        """Heads of every site on the donors of some sequences, if there are donors."""
        if self.donors is None:
            return None
        device = next(subject.model.parameters()).device
        return subject.captured(self.donors[index].to(device))


def pieces(data: Sequences, tokens: int) -> Iterator[tuple[Int[Tensor, " b"], Sequences]]:
    """Batches of sequences of about the same length, without common padding.

    Args:
        data: The sequences.
        tokens: Most tokens in one batch.

    Returns:
        Places of the sequences in the data, and the sequences.
    """
    order = data.lengths.argsort(stable=True)
    for index in order.split(max(1, tokens // data.width)):
        yield index, data[index].trimmed()


@torch.no_grad()
def rotary_means(
    subject: CheckpointSubject,
    data: Sequences,
    tokens: int | None = None,
    look: Callable[[int, RotatedHeads, Sequences], None] | None = None,
) -> list[SiteMeans]:
    """Means of every site's queries, keys and attended lags over all tokens.

    Args:
        subject: The model.
        data: The sequences.
        tokens: Tokens in one batch; None takes what fills the device.
        look: Called with the place of each site, its call and the sequences, as it runs.

    Raises:
        UnsupportedError: If the model does not rotate by one module.
    """
    device = next(subject.model.parameters()).device
    places = {site.module: place for place, site in enumerate(subject.sites)}
    sums = [MeanSums() for _ in subject.sites]
    rotary_name(subject.model)
    rotations = subject.rotations
    for _, piece in pieces(data, tokens or TOKENS[device.type]):
        piece = piece.to(device)

        def add(heads: RotatedHeads, piece: Sequences = piece) -> None:
            place = places[heads.call.module]
            sums[place].add(heads, piece.real)
            if look is not None:
                look(place, heads, piece)

        with rotations_recorded(subject.model, rotations, add):
            subject.run(piece)
    return [total.means() for total in sums]


@torch.no_grad()
def _means(subject: CheckpointSubject, data: Sequences, tokens: int | None) -> list[Float[Tensor, " f"]]:
    """Mean heads of every site over all tokens of its stack."""
    device = next(subject.model.parameters()).device
    sums = [torch.zeros((), dtype=torch.float64, device=device)] * len(subject.sites)
    for _, piece in pieces(data, tokens or TOKENS[device.type]):
        piece = piece.to(device)
        for place, heads in enumerate(subject.captured(piece)):
            real = piece.places(subject.sites[place].role)
            sums[place] = sums[place] + (heads.double() * real[..., None]).sum((0, 1))
    counts = [int(data.places(site.role).sum()) for site in subject.sites]
    return [total / count for total, count in zip(sums, counts, strict=True)]
