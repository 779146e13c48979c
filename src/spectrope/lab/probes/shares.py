"""Content and position in the hidden states that enter attention, layer by layer."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from spectrope.spectral import EffectShares, effect_shares, least_squares_effects
from spectrope.stats import Interval, jackknife_intervals

SHARES = ("content", "position", "residual")


@dataclass(frozen=True, kw_only=True)
class StateShares:
    """Shares of the variance of hidden states, as fractions, with intervals over examples.

    On natural text, content and position are not orthogonal, so that the shares need not sum exactly to 1.

    Args:
        content: Share of the token.
        position: Share of its position.
        residual: Share that no sum of the two explains.
        content_null: Expected share of content for states that depend on neither, if tokens and positions
            were balanced; it is larger the more tokens tell of positions.
        position_null: Expected share of position for such states, likewise.
    """

    content: Interval | None
    position: Interval | None
    residual: Interval | None
    content_null: float
    position_null: float


def state_shares(states: Float[Tensor, "b n c"], tokens: Int[Tensor, "b n"]) -> StateShares:
    """The two-way analysis of variance of hidden states, by token and by position.

    Args:
        states: Hidden states, with shape (b, n, c).
        tokens: Token ids, with shape (b, n).

    Raises:
        ConfigError: If there are fewer than two examples, or all states are equal.
    """
    wide, tokens = states.detach().to("cpu", torch.float64), tokens.cpu()

    def measured(index: Int[np.ndarray, " m"]) -> Float[np.ndarray, " k"]:
        shares = _shares(wide[torch.from_numpy(index)], tokens[torch.from_numpy(index)])
        return np.array([getattr(shares, name) for name in SHARES])

    nulls = _shares(wide, tokens)
    intervals = jackknife_intervals(measured, len(wide))
    return StateShares(
        **{name: intervals.at(place) for place, name in enumerate(SHARES)},
        content_null=nulls.content_null,
        position_null=nulls.position_null,
    )


def _shares(states: Float[Tensor, "b n c"], tokens: Int[Tensor, "b n"]) -> EffectShares:
    positions = torch.arange(states.shape[1]).expand(len(states), -1)
    design = tokens.flatten(), positions.flatten()
    effects = least_squares_effects(states.flatten(0, 1), *design)
    return effect_shares(effects)
