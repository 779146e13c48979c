"""What no combination of options varies: the base, the rows of a batch and the number of tokens."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from spectrope.conformance.cells import BASE, RotaryCell
from spectrope.conformance.implementation import NotOffered, RotaryFunction
from spectrope.conformance.measured import error_of, judged
from spectrope.conformance.oracle import rotated
from spectrope.core import reason

OTHER_BASE = 500_000.0
FEWER = (11, 1)  # Tokens.


@dataclass(frozen=True)
class Beyond:
    """One call beside the plainest case that a function gets right.

    Args:
        name: What differs, in words.
        x: Vectors.
        positions: Their places.
        base: Of the frequencies.
    """

    name: str
    x: Float[Tensor, "b h t d"]
    positions: Int[Tensor, "*axes t"]
    base: float = BASE


def faults_beyond(tested: RotaryFunction, cell: RotaryCell) -> dict[str, str | None]:
    """What is wrong where something else than the options of cells varies, by what varies.

    Args:
        tested: The function.
        cell: One that it gets right.

    Returns:
        Words for each call; "" if nothing is wrong, None if the function does not offer it.
    """
    return {one.name: _fault(tested, cell, one) for one in _calls(cell)}


def _calls(cell: RotaryCell) -> Iterator[Beyond]:
    x, positions = cell.vectors("x"), cell.positions()
    yield Beyond(f"base={OTHER_BASE:.1f}", x, positions, OTHER_BASE)
    yield Beyond("two sequences in a batch", torch.cat([x, cell.vectors("g")]), positions)
    for tokens in FEWER:
        name = f"{tokens} token{'s' * (tokens > 1)}"
        yield Beyond(name, x[..., :tokens, :], positions[..., :tokens])


def _fault(tested: RotaryFunction, cell: RotaryCell, call: Beyond) -> str | None:
    """What is wrong with one call; "" if nothing is, None if it is not offered."""
    if call.base != BASE and "base" not in tested.takes:
        return None
    try:
        y = tested(call.x.clone(), call.positions.clone(), cell.asked() | {"base": call.base})
    except NotOffered:
        return None
    except (Exception, SystemExit) as error:  # A user's function may raise anything.
        return f"fails with {reason(error)}"
    if not isinstance(y, Tensor) or y.shape != call.x.shape:
        return f"returns {tuple(y.shape) if isinstance(y, Tensor) else type(y).__name__}"
    if y.device != call.x.device:
        return f"returns a tensor on {y.device}"
    error = error_of(cell, y, rotated(cell, call.x, call.positions, base=call.base), call.x)
    if judged(cell, call.positions, error) != "wrong":
        return ""
    return f"wrong, by {error:.2g} of the largest coordinate"
