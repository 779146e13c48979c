"""Where a head's rotation starts: the vector before it, the factor on it, the first token's position."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import torch
from jaxtyping import Complex, Float
from torch import Tensor

from spectrope.checkpoints.audit.layout import Layout
from spectrope.encodings import Pairing

FAINT = 1e-12  # Runs and coordinates of less than this share of the others' energy are lost in rounding.
COORDINATES = 1e-3  # Relative departure of coordinates up to which vectors are the same but for a factor.
TIED = 1e-4  # Relative difference of cosines up to which runs are the same.
ORDERS: tuple[Pairing, Pairing] = ("halves", "adjacent")


@dataclass(frozen=True)
class HeadStart:
    """The first vector of one head, against what it was before its rotation.

    Args:
        pairing: How the weights lay out the pairs.
        gain: Factor that the rotation multiplies it by.
        position: That by which it has turned.
        places: Where its source holds the vector; empty where it has turned at the first token.
    """

    pairing: Pairing
    gain: float
    position: int
    places: tuple[int, ...] = ()

    @classmethod
    def at_first(
        cls, source: Float[Tensor, "b _"], z: Complex[Tensor, "b m"], order: Pairing, noise: float
    ) -> "tuple[HeadStart, float] | None":
        """The start at position 0 in one order of the pairs, if a source holds it, and how far it is off."""
        match = _match(source, serialised(z, order))
        if match is None or not match.holds(noise):
            return None
        return cls(order, match.factor, 0, match.places), match.departure


def start_of(
    x: Float[Tensor, "b t d"],
    layout: Layout,
    frequencies: Float[Tensor, " m"],
    sources: list[Float[Tensor, "b _"]],
    noise: float,
) -> HeadStart | None:
    """Find the vectors before rotation among the sources; None if they are not there.

    At position 0 they are a run of coordinates in the direction of the rotated ones, in one order of the
    pairs or the other. Elsewhere the pairs' norms are those of a run, and the phases between them are those
    of a position up to t away.

    Args:
        x: Queries or keys of one head, rotated.
        layout: How the kernel sees the pairs.
        frequencies: Radians per position of each pair.
        sources: What the layer's inner modules put out at the first position; one that holds the vectors is
            moved to the end, where it is tried first for the next head.
        noise: Relative rounding error of the model's arithmetic.
    """
    if layout.width < 4:  # two coordinates have but one order, and any run is almost in their direction
        return None
    z = layout.planes(x[:, 0])
    within = max(1e-9, 4 * noise**2)
    for place in reversed(range(len(sources))):
        tried = [HeadStart.at_first(sources[place], z, order, noise) for order in ORDERS]
        found = [one for one in tried if one is not None]
        if found:
            sources.append(sources.pop(place))
            return min(found, key=lambda one: one[1])[0]
    turned = (_turned(source.double(), z, frequencies, x.shape[1], within) for source in reversed(sources))
    return next((start for start in turned if start is not None), None)


def _turned(
    source: Float[Tensor, "b _"],
    z: Complex[Tensor, "b m"],
    frequencies: Float[Tensor, " m"],
    length: int,
    within: float,
) -> HeadStart | None:
    """The start whose vectors lie in a source and have turned by some position other than 0."""
    for pairing in ORDERS:
        for run in runs_like(source, z, pairing, within):
            c = (z * run.conj()).sum(0)
            if c.abs().sum() < (1 - within) * (z.abs() * run.abs()).sum():
                continue  # contents disagree on the phases
            factor = z.abs().square().sum() / c.abs().sum()
            if _departure(factor * run.abs(), z.abs()) > max(COORDINATES, 8 * within**0.5):
                continue
            position, share = _position_of(c, frequencies, length)
            if share > 1 - 1e3 * within:  # positions are integers, measured frequencies are not exact
                return HeadStart(pairing, factor.item(), position)
    return None


def _position_of(
    c: Complex[Tensor, " m"], frequencies: Float[Tensor, " m"], length: int
) -> tuple[int, float]:
    """The whole number of positions that explains phases best, and the share of them that it explains."""
    positions = torch.arange(1 - length, length, dtype=torch.float64, device=c.device)
    angles = positions[:, None] * frequencies
    matched = (torch.polar(torch.ones_like(angles), -angles) * c).real.sum(1) / c.abs().sum()
    best = int((matched - 1e-12 * positions.abs()).argmax())
    return int(positions[best]), matched[best].item()


def runs_like(
    source: Float[Tensor, "b _"], z: Complex[Tensor, "b m"], pairing: Pairing, within: float, step: int = 1
) -> Iterator[Complex[Tensor, "b m"]]:
    """Runs of a source whose pairs have norms in the proportions of these pairs, best first.

    Runs begin at multiples of a step.
    """
    m = z.shape[1]
    if source.shape[1] < 2 * m:
        return
    runs = _pairs(source, m, pairing, step)
    energies, wanted = runs.abs().square(), z.abs().square()
    products = torch.einsum("bom,bm->o", energies, wanted)
    sizes = energies.square().sum((0, 2)).sqrt() * wanted.norm()
    cosines = products / sizes.clamp(min=1e-300)
    for place in cosines.argsort(descending=True)[:2].tolist():
        if cosines[place] > 1 - 4 * within:
            yield runs[:, place]


def _pairs(source: Float[Tensor, "b _"], m: int, pairing: Pairing, step: int) -> Complex[Tensor, "b o m"]:
    """The pairs of every run of 2m coordinates that begins at a multiple of a step."""
    runs = source.unfold(1, 2 * m, step)
    first, second = (
        (runs[..., :m], runs[..., m:]) if pairing == "halves" else (runs[..., ::2], runs[..., 1::2])
    )
    return torch.complex(first.contiguous(), second.contiguous())


def serialised(z: Complex[Tensor, "b m"], pairing: Pairing) -> Float[Tensor, "b w"]:
    """The coordinates of pairs in the order in which weights lay them out."""
    parts = torch.view_as_real(z)
    return (parts.transpose(-1, -2) if pairing == "halves" else parts).flatten(1)


def match_of(x: Float[Tensor, "b d"], sources: list[Float[Tensor, "b _"]], noise: float) -> "Match | None":
    """The run of a source that has the direction of vectors; None if there is none.

    Args:
        x: Queries or keys of one head, that nothing turns.
        sources: What the layer's inner modules put out at the first position.
        noise: Relative rounding error of the model's arithmetic.
    """
    if x.shape[1] < 4:
        return None
    matches = (_match(source, x.double()) for source in reversed(sources))
    return next((match for match in matches if match is not None and match.holds(noise)), None)


@dataclass(frozen=True)
class Match:
    """A run of a source that is most in the direction of a target.

    Args:
        cosine: Of both, of either sign.
        factor: Target over run.
        departure: Of the coordinates, each relative to its own size, over all of them.
        places: Where it begins, and others that are as good, as where heads have the same weights.
    """

    cosine: float
    factor: float
    departure: float
    places: tuple[int, ...]

    def holds(self, noise: float) -> bool:
        """Whether the target is the run, up to its factor and rounding.

        The cosine alone does not tell: one large coordinate, as trained models have, may make it 1.
        """
        return self.cosine > 1 - max(1e-9, 4 * noise**2) and self.departure < max(COORDINATES, 8 * noise)


def _match(source: Float[Tensor, "b _"], target: Float[Tensor, "b w"]) -> Match | None:
    """The run of the source that is most in the direction of the target; None if the source is too short."""
    if source.shape[1] < target.shape[1]:
        return None
    width = target.shape[1]
    source, spectrum, energies = _prepared(source)
    energies = energies[width - 1 :] - torch.nn.functional.pad(energies[:-width], (1, 0))
    sizes = energies.clamp(min=FAINT * energies.max()).sqrt() * target.norm()
    cosines = (_products(spectrum, source.shape[1], target) / sizes.clamp(min=1e-300)).abs()
    best = int(cosines.argmax())
    places = (cosines > cosines[best] * (1 - TIED)).nonzero().flatten().tolist()
    run = source[:, best : best + width]
    product, size = (run * target).sum(), run.norm() * target.norm()
    factor = target.square().sum() / product
    cosine = (product / size.clamp(min=1e-300)).abs().item()
    return Match(cosine, factor.item(), _departure(factor * run, target), (*places,))


def _departure(x: Float[Tensor, "b w"], target: Float[Tensor, "b w"]) -> float:
    """Root mean square over coordinates of how far each is off, relative to its own size."""
    own = target.square().sum(0)
    return ((x - target).square().sum(0) / (own + FAINT * own.mean()).clamp(min=1e-300)).mean().sqrt().item()


@lru_cache(maxsize=16)  # which one layer needs for all its heads
def _prepared(
    source: Float[Tensor, "b n"],
) -> tuple[Float[Tensor, "b n"], Complex[Tensor, "b f"], Float[Tensor, " n"]]:
    """A source in double precision, its Fourier transform, and sums of its squares up to each coordinate."""
    source = source.double()
    return source, torch.fft.rfft(source), source.square().sum(0).cumsum(0)


def _products(spectrum: Complex[Tensor, "b f"], n: int, target: Float[Tensor, "b w"]) -> Float[Tensor, " o"]:
    """Inner product of the target with every run of n coordinates whose Fourier transform is given."""
    spectra = spectrum * torch.fft.rfft(target, n).conj()
    return torch.fft.irfft(spectra.sum(0), n)[: n - target.shape[1] + 1]
