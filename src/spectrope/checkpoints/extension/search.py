"""LongRoPE for checkpoints: a search for one factor per frequency, on a piece of the user's texts."""

from jaxtyping import Int
from torch import Tensor, nn

from spectrope.checkpoints.extension.perplexity import losses
from spectrope.checkpoints.extension.rotations import rotations_of, scaled, slowed
from spectrope.core import UnsupportedError
from spectrope.lab import search_slowdowns

LONGROPE = "longrope"  # Its name among the methods.
SEED = 0


def searched_factors(
    model: nn.Module, piece: Int[Tensor, " t"], factor: float, length: int
) -> tuple[float, ...]:
    """LongRoPE's factors, one per frequency, of the lowest loss on tokens beyond the trained length.

    Args:
        model: A Hugging Face model with rotary modules.
        piece: Tokens on which the search is run, and which are not to be scored afterwards.
        factor: New length over the trained one.
        length: Trained length, in positions.

    Raises:
        UnsupportedError: If rotary modules differ in width or base, so that no factors serve all, or the
            checkpoint scales positions already.
    """
    rotations = rotations_of(model)
    if len({(one.width, round(one.base)) for one in rotations}) > 1:
        raise UnsupportedError(
            f"{type(model).__name__} has rotary modules of different widths or bases, for which no one list "
            f"of factors can be searched; leave {LONGROPE} out."
        )

    def loss(factors: tuple[float, ...]) -> float:
        with scaled(model, slowed(factors), factor, length):
            return float(losses(model, piece)[length - 1 :].mean())

    first = rotations[0]
    return search_slowdowns(loss, first.width, first.base, factor, length, SEED)
