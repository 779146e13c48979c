"""Detect positions of a rotation that are not those of the tokens."""

import torch
from jaxtyping import Complex, Float
from torch import Tensor

UNLIKE = 1e-2  # Largest share of the phases' energy that positions may leave unexplained.


def applied_positions(
    z: Complex[Tensor, "n t m"], frequencies: Float[Tensor, " m"]
) -> Float[Tensor, " t"] | None:
    r"""The position by which the pairs of each token have turned, at declared frequencies.

    Token t has the position :math:`\arg\max_p \mathrm{Re} \sum_j c_{tj} e^{-i p \omega_j}`, with
    :math:`c_{tj}` the pairs relative to those of the first token, summed over vectors.

    Args:
        z: Pairs of n vectors at t tokens.
        frequencies: Radians per position of each pair.

    Returns:
        Positions, or None where none between -t and 2t explain the phases.
    """
    c, t = (z * z[:, :1].conj()).sum(0), z.shape[1]
    p = torch.arange(-t, 2 * t, dtype=torch.float64, device=z.device)
    angles = p[:, None] * frequencies.to(p)
    for sense in (1, -1):  # turned the other way, positions count backwards
        matched = (c @ torch.polar(torch.ones_like(angles), -sense * angles).T).real
        best, positions = matched.max(1)
        if bool((1 - best / c.abs().sum(1) <= UNLIKE).all()):
            return p[positions]
    return None


def named_positions(positions: Float[Tensor, " t"]) -> str:
    """What positions do instead of counting the tokens; empty where they count them."""
    t = torch.arange(len(positions), dtype=positions.dtype, device=positions.device)
    if bool((positions == t).all()):
        return ""
    again = (positions[1:] == 0).nonzero()
    period = int(again[0]) + 1 if len(again) else 0
    if period > 1 and bool((positions == t % period).all()):
        return f"restart every {period} tokens"
    steps = positions.diff()
    if bool((steps == steps[0]).all()):
        return f"advance by {int(steps[0])} per token"
    if int((steps != 1).sum()) == 1:
        place = int((steps != 1).nonzero()[0]) + 1
        return f"jump to {int(positions[place])} at token {place}"
    last = int(positions.max())
    if bool((positions == t.clamp(max=last)).all()):
        return f"stay at {last} from token {last} on"
    if period == 1 and (step := int((positions == 0).sum())) and bool((positions == t // step).all()):
        return f"advance once in {step} tokens"
    first = int((positions != t).nonzero()[0])
    return f"are those of other tokens; token {first} has position {int(positions[first])}"
