"""Each query head and each key-value head by itself: which ones turn otherwise than declared."""

from dataclasses import replace

from jaxtyping import Float
from torch import Tensor

from spectrope.checkpoints.audit.compare import Discrepancy, rotation_findings
from spectrope.checkpoints.audit.encoding import Turning
from spectrope.checkpoints.audit.measure import turning_of, unscaled
from spectrope.checkpoints.audit.rotary import fit_rotation
from spectrope.checkpoints.probes.constant_content import LayerKernel

POOLED = frozenset(
    (
        "encoding",
        "pairing",
        "sense of rotation",
        "rotated fraction",
        "base",
        "scaling",
        "frequencies",
        "angles",
        "positions",
    )
)


def by_head(
    findings: list[Discrepancy], kernel: LayerKernel, declared: Turning | None, length: int, noise: float
) -> list[Discrepancy]:
    """A layer's findings, with those of single heads in the place of what all heads together show.

    Where every head of both sides departs, the finding is the layer's and stays as it is.

    Args:
        findings: Of all heads together.
        kernel: The layer's.
        declared: The rotation declared; without one, nothing changes.
        length: Positions of the measurement.
        noise: Relative rounding error of the model's arithmetic.
    """
    if declared is None:
        return findings
    call = kernel.call
    sides = {"queries": unscaled(call.q.double(), noise)[0], "keys": call.k.double()}
    by_place = {
        (side, head): _head(x[:, head : head + 1], kernel, declared, length, noise)
        for side, x in sides.items()
        for head in range(x.shape[1])
    }
    wrong = {place: one for place, one in by_place.items() if one is not None}
    if not wrong or len(wrong) == len(by_place):
        return findings
    rest = [finding for finding in findings if finding.what not in POOLED]
    whole = [side for side in sides if all(place in wrong for place in by_place if place[0] == side)]
    if whole:
        one = wrong[whole[0], 0]
        return [*rest, replace(one, what=f"{one.what} of {whole[0]} alone", head=None)]
    return [*rest, *(_named(place, one, call.k.shape[1] < call.q.shape[1]) for place, one in wrong.items())]


def _named(place: tuple[str, int], finding: Discrepancy, grouped: bool) -> Discrepancy:
    side, head = place
    owner = "key-value head" if side == "keys" and grouped else "head"
    return replace(finding, what=f"{finding.what} of {side} of {owner} {head}", head=head)


def _head(
    x: Float[Tensor, "b 1 t d"], kernel: LayerKernel, declared: Turning, length: int, noise: float
) -> Discrepancy | None:
    """The first respect in which one head departs from the rotation declared, if it does."""
    rotation = fit_rotation(x, x, kernel.sources, noise)
    if rotation is None:
        moves = bool((x - x[..., :1, :]).abs().max() > 20 * noise * x.square().mean().sqrt())
        return Discrepancy("rotation", "as of the layer", "of no known layout" if moves else "none")
    turning = turning_of(rotation, declared, length, noise)
    about = rotation_findings(replace(declared, gain=None), turning, length, noise)
    return next((finding for finding in about if finding.what in POOLED), None)
