"""Exact randomisation tests: does position matter to hidden states, is a head's Toeplitz share chance."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from spectrope.core.random import torch_stream
from spectrope.spectral.anova import lag_anova
from spectrope.spectral.checks import check, factors, real_matrix


@dataclass(frozen=True)
class RandomisationTest:
    r"""A statistic against its values under random moves that the null hypothesis permits.

    Args:
        statistic: As observed.
        null_mean: Mean under the moves.
        null_quantile: Its 95 % quantile under the moves.
        p_value: :math:`(1 + \#\{\text{null} \ge \text{observed}\})/(1 + \text{draws})`, one-sided; exact in
            that its size never exceeds the level. Moves that leave the statistic undefined count as reaching
            it.
        draws: Moves drawn.
    """

    statistic: float
    null_mean: float
    null_quantile: float
    p_value: float
    draws: int


def position_share_test(x: Tensor, draws: int = 199, seed: int = 0) -> RandomisationTest:
    r"""Test on a balanced design that position has no effect, by flipping the sign of whole tokens.

    Under the null each token's states scatter about their mean symmetrically, in whatever way neighbouring
    positions depend on each other; so all P states of a token may change sign together. (Permuting positions
    within tokens would need independence: its size is .18 instead of .05 under autocorrelation.) The
    statistic is the share of position in the energy of the states minus token means.

    Args:
        x: Hidden states by token and position, with shape (W, P, d), W, P >= 2.
        draws: Random sign patterns.
        seed: Of the patterns.

    References:
        Testing Statistical Hypotheses (Lehmann and Romano, 2005), Sec. 15.2, on randomisation tests.
    """
    check(
        x.ndim == 3 and min(x.shape[:2]) >= 2,
        f"x must have shape (W, P, d), W, P >= 2; got {tuple(x.shape)}.",
    )
    states = real_matrix(x.flatten(0, 1), "x").view(x.shape)
    rows = (states - states.mean(1, keepdim=True)).flatten(1)
    energy = (rows**2).sum()
    floor = 1e-26 * (states**2).sum().item()
    check(
        energy.item() > floor, "states must vary with position somewhere: a share of no energy is undefined."
    )

    def share(signs: Tensor) -> Tensor:
        return ((signs @ rows) ** 2).sum(-1) / (len(rows) * energy)

    generator = torch_stream(seed, "position_share_test")
    signs = torch.randint(0, 2, (draws, len(rows)), generator=generator).to(rows) * 2 - 1
    return randomised(share(torch.ones_like(rows[:1, 0].expand(len(rows)))).item(), share(signs))


def toeplitz_share_test(
    q: Tensor, k: Tensor, causal: bool = False, draws: int = 99, seed: int = 0
) -> RandomisationTest:
    r"""Test that lags explain no more of a head's logits than chance, by permuting the rows of q and of k.

    The statistic is the share of lags beyond row effects. Both permutations are independent: they keep all
    contents and destroy where they stand. A small p-value says that the head's logits depend on the lag, be
    it by an encoding or by text whose content repeats; so compare it with the same head without rotation, and
    on shuffled text.

    Args:
        q: Queries as they enter the product, with shape (n, d).
        k: Keys likewise, with shape (n, d).
        causal: Whether query i sees keys j <= i alone.
        draws: Pairs of permutations.
        seed: Of the permutations.

    Raises:
        ConfigError: If row effects explain all there is, so that there is no share to test.
    """
    q, k = factors(q, k)
    observed = lag_anova(q, k, causal).share
    check(observed == observed, "logits must vary within rows: a share of no energy is undefined.")
    generator = torch_stream(seed, "toeplitz_share_test")
    null = [lag_anova(_shuffled(q, generator), _shuffled(k, generator), causal).share for _ in range(draws)]
    return randomised(observed, torch.tensor(null, dtype=torch.float64))


def randomised(observed: float, null: Tensor) -> RandomisationTest:
    """The record of a one-sided test; values within rounding of the observed one, and NaN, reach it."""
    check(len(null) >= 1, f"draws must be at least 1; got {len(null)}.")
    reached = int((~(null < observed * (1 - 1e-12))).sum())
    return RandomisationTest(
        statistic=observed,
        null_mean=null.nanmean().item(),
        null_quantile=null.nanquantile(0.95).item(),
        p_value=(1 + reached) / (1 + len(null)),
        draws=len(null),
    )


def null_distribution(statistic: Callable[[Tensor], float], x: Tensor, draws: int, seed: int) -> Tensor:
    """A statistic of x with its rows permuted at random, `draws` times, with shape (draws,)."""
    generator = torch_stream(seed, "null_distribution")
    return torch.tensor([statistic(_shuffled(x, generator)) for _ in range(draws)], dtype=torch.float64)


def _shuffled(x: Tensor, generator: torch.Generator) -> Tensor:
    return x[torch.randperm(len(x), generator=generator).to(x.device)]
