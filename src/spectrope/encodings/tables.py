"""Rows of a table at positions, whole or fractional."""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from spectrope.core.errors import UnsupportedError


def lookup(table: Float[Tensor, "n c"], index: Tensor, owner: object) -> Tensor:
    """Rows of `table` at `index`, interpolated linearly between rows where it is fractional.

    Args:
        table: The rows.
        index: Row numbers of any shape (*s,), whole or floating-point.
        owner: Whom the message names.

    Returns:
        The rows, with shape (*s, c).

    Raises:
        UnsupportedError: If an index lies outside the table. On CUDA, where looking would stall the device,
            torch's own device-side assertion stops the program instead.
    """
    try:
        if not index.is_floating_point():
            return F.embedding(index, table)
        below, above = index.floor().long(), index.ceil().long()
        weight = (index - below).to(table.dtype)[..., None]
        return torch.lerp(F.embedding(below, table), F.embedding(above, table), weight)
    except IndexError:
        raise UnsupportedError(
            f"{type(owner).__name__} has a table of {len(table)} rows and was asked for one outside it; "
            "raise max_length, or take an encoding that extends beyond its training length."
        ) from None


def clipped(lag: Tensor, reach: int) -> Int[Tensor, "b i j"]:
    """Row of each lag in a table of 2 * reach + 1 rows, from -reach to reach; fractions count as whole."""
    return lag.long().clamp(-reach, reach) + reach


def at_lags(scores: Float[Tensor, "b h i n"], rows: Int[Tensor, "#b i j"]) -> Float[Tensor, "b h i j"]:
    """For each query and key, the score that the query gives to the row of their lag."""
    return scores.gather(-1, rows[:, None].expand(*scores.shape[:-1], rows.shape[-1]))
