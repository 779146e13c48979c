"""Identify mistakes in rotations that do not preserve the norms of coordinate pairs."""

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from spectrope.checkpoints.adapters import Call
from spectrope.checkpoints.audit.compare import Discrepancy
from spectrope.checkpoints.audit.encoding import LayerEncoding, Turning
from spectrope.encodings import Pairing

ALIKE = 1e-2  # Largest share of the vectors' norm that a named mistake may leave unexplained.
OTHER: dict[Pairing, Pairing] = {"halves": "adjacent", "adjacent": "halves"}


def named_mixture(x: Float[Tensor, "n t d"], declared: Turning) -> str:
    """The mistake that turns the first vectors into those at later positions, "" if none known here does.

    Args:
        x: Queries or keys with constant content.
        declared: The rotation that should have been applied.
    """
    part = x[..., declared.start : declared.start + declared.width]
    t = torch.arange(x.shape[1], dtype=torch.float64, device=x.device)[:, None]
    angles = t * torch.tensor(declared.frequencies, dtype=torch.float64, device=x.device)
    first = part[:, :1]
    for words, later in _mixtures(first, angles, declared.pairing or "halves"):
        for way in (later, later * torch.where(t == 0, 0.0, 1.0) + first * (t == 0)):
            if bool((part - way).norm() <= ALIKE * part.norm()):
                return words
    return ""


def without_unknown(
    findings: list[Discrepancy], call: Call, declared: LayerEncoding, effective: LayerEncoding
) -> list[Discrepancy]:
    """A layer's findings, with the mistake named where its rotation is of no known family."""
    unknown = [one for one in findings if one.what == "encoding"]
    if effective.kind != "unknown" or declared.turning is None or not unknown:
        return findings
    sides = (x.double().flatten(0, 1) for x in (call.q, call.k))
    words = next(filter(None, (named_mixture(x, declared.turning) for x in sides)), "")
    if not words:
        return findings
    respect = "pairing" if words.startswith("coordinates") else "rotation"
    rest = [one for one in findings if one.what != "encoding"]
    return [*rest, Discrepancy(respect, "of pairs, which keep their norms", words)]


def _mixtures(
    x: Float[Tensor, "n 1 w"], angles: Float[Tensor, "t m"], pairing: Pairing
) -> Iterator[tuple[str, Float[Tensor, "n t w"]]]:
    """Mistakes, and the vectors that follow from the first ones."""
    for order in (pairing, OTHER[pairing]):
        cos, sin = (_spread(one, order) for one in (angles.cos(), angles.sin()))
        partner = _partner(x, order)
        signs = torch.sign(_partner(torch.ones_like(x), order))
        yield "the sine's minus sign is missing", x * cos + signs * partner * sin
        other = _partner(x, OTHER[order])
        yield f"coordinates pair up as {OTHER[order]}, angles as {order}", x * cos + other * sin
        yield "cosines are left out", x + partner * sin
        yield "sines are left out", x * cos


def _spread(x: Float[Tensor, "t m"], pairing: Pairing) -> Float[Tensor, "t w"]:
    """A value per pair at both its coordinates."""
    return torch.cat([x, x], -1) if pairing == "halves" else x.repeat_interleave(2, -1)


def _partner(x: Float[Tensor, "n 1 w"], pairing: Pairing) -> Float[Tensor, "n 1 w"]:
    """Each pair (a, b) as (-b, a)."""
    if pairing == "halves":
        first, second = x.chunk(2, -1)
        return torch.cat([-second, first], -1)
    return torch.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2)
