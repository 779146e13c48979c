"""A measured rotation, as it is compared with a declared one."""

import math
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from spectrope.checkpoints.audit.encoding import Turning
from spectrope.checkpoints.audit.layout import moving_coordinates
from spectrope.checkpoints.audit.precision import rounding_of
from spectrope.checkpoints.audit.restarts import applied_positions, named_positions
from spectrope.checkpoints.audit.rotary import Rotation

UNEVEN = 0.1  # Largest departure of a phase from a line, in radians, that is left to rounding.
ALIKE = 0.02  # Relative difference of the slowdowns of two pairs that are taken for one.
CHANCE = 0.1  # Radians per position beyond which some number of whole turns may fit by chance.


def phase_bound(length: int, noise: float) -> float:
    """Departure of phases from a line, in radians, that is left to float32 and the model's arithmetic."""
    return 10 * noise + 8 * 2**-24 * length


def turning_of(
    x: Float[Tensor, "b h t d"], rotation: Rotation, declared: Turning | None, noise: float
) -> Turning:
    """A measured rotation as it is compared with a declared one.

    Args:
        x: The vectors, or some of them, that it was measured on.
        rotation: As measured.
        declared: Gives the frequencies of the pairs that turn too slowly to be seen.
        noise: Relative rounding error of the model's arithmetic.
    """
    length = x.shape[2]
    resolved = 40 * noise / length
    uneven = 8 * rotation.phase_error / length
    frequencies = _with_whole_turns(rotation, declared, resolved)
    signs = {
        f > 0
        for f, error in zip(frequencies, rotation.errors, strict=True)
        if abs(f) > max(5 * error, resolved, uneven)
    }
    sense = 0 if len(signs) > 1 else (1 if True in signs else -1)
    turning = Turning(
        start=rotation.start,
        width=rotation.width,
        head_dim=rotation.head_dim,
        frequencies=tuple(f * (sense or 1) for f in frequencies),
        errors=rotation.errors,
        gain=rotation.gain,
        pairing=rotation.pairing if rotation.width > 2 else None,
        phase_error=rotation.phase_error,
        sense=sense if signs else None,
        resolution=uneven + 4 * noise / length,
    )
    if declared is None:
        return turning
    return _uneven(_completed(turning, declared, resolved), x, rotation, declared, phase_bound(length, noise))


def _with_whole_turns(rotation: Rotation, declared: Turning | None, resolved: float) -> tuple[float, ...]:
    """Frequencies, which are measured up to whole turns per position, with those turns that carry on the
    slowdown of the next slower pair."""
    if declared is None or (rotation.start, rotation.width) != (declared.start, declared.width):
        return rotation.frequencies
    found, ratio = list(rotation.frequencies), None
    for j in reversed(range(len(found))):
        if (wanted := declared.frequencies[j]) <= 0:
            continue
        if ratio is not None:
            likely = wanted * ratio
            nearest = found[j] + 2 * math.pi * round((likely - found[j]) / (2 * math.pi))
            if abs(nearest - likely) <= min(ALIKE * abs(likely), CHANCE):
                found[j] = nearest
        if abs(found[j]) * ALIKE > 2 * max(rotation.errors[j], resolved):
            ratio = found[j] / wanted
    return tuple(found)


def _uneven(
    turning: Turning, x: Float[Tensor, "b h t d"], rotation: Rotation, declared: Turning, bound: float
) -> Turning:
    """The rotation with what its positions do and how its angles were rounded, where phases are no lines."""
    same = (rotation.start, rotation.width) == (declared.start, declared.width)
    if not same or rotation.phase_error <= bound:
        return turning
    planes = rotation.layout.planes(x.flatten(0, 1))
    frequencies = torch.tensor(declared.frequencies, dtype=torch.float64, device=x.device)
    if rounding := rounding_of(planes, frequencies, bound):
        return replace(turning, rounding=rounding)
    if rotation.phase_error < UNEVEN:
        return turning
    positions = applied_positions(planes, frequencies)
    return replace(turning, positions="" if positions is None else named_positions(positions))


def _completed(turning: Turning, declared: Turning, resolved: float) -> Turning:
    """A rotation with the declared pairs that turn too slowly to be seen, at their declared frequencies.

    Their standard errors say that within them nothing was measured.
    """
    if declared.start != turning.start or declared.width <= turning.width:
        return turning
    if turning.pairing == "halves":  # whose pairs lie elsewhere when there are more of them
        return turning
    unseen = declared.frequencies[len(turning.frequencies) :]
    if any(abs(frequency) > resolved for frequency in unseen):
        return turning
    return replace(
        turning,
        width=declared.width,
        frequencies=(*turning.frequencies, *unseen),
        errors=(*turning.errors, *(resolved for _ in unseen)),
    )


def unscaled(q: Float[Tensor, "b h t d"], noise: float) -> tuple[Float[Tensor, "b h t d"], float | None]:
    """Queries freed of a factor that grows with position, and that factor at the last position, if any.

    A factor shared by all heads and contents is told from a rotation, which keeps norms.
    """
    norms = q.norm(dim=-1).flatten(0, 1)
    norms = norms[norms[:, 0] > 0]  # Heads that were pruned say nothing.
    growth = norms / norms[:, :1]
    if len(growth) == 0:
        return q, None
    if bool((growth - 1).abs().max() <= 20 * noise) or bool((growth - growth[:1]).abs().max() > 20 * noise):
        return q, None
    return q / growth[0][:, None], growth[0, -1].item()


def varies(x: Float[Tensor, "b h t d"], noise: float) -> bool:
    """Whether vectors differ between positions by more than rounding."""
    return bool(moving_coordinates(x.flatten(0, 1), noise).any())
