"""Distributions of next tokens, in full or of a few tokens."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spectrope.checkpoints.parity.observed import (
    NO_TOKEN,
    Observed,
    agreement,
    divergence,
    rank_correlations,
    shared,
)
from spectrope.core import ConfigError


def drawn(seed: int, n: int = 2, m: int = 3, k: int = 12) -> Observed:
    generator = torch.Generator().manual_seed(seed)
    return Observed(torch.randn(n, m, k, generator=generator, dtype=torch.float64).log_softmax(-1))


def top(full: Observed, k: int) -> Observed:
    logs, ids = full.logs.topk(k, -1)
    return Observed(logs, ids)


def test_divergence_by_hand():
    p, q = (Observed(torch.tensor([[x]], dtype=torch.float64).log()) for x in ([0.5, 0.5], [0.25, 0.75]))
    assert divergence(p, q).item() == pytest.approx(0.5 * math.log(2) + 0.5 * math.log(2 / 3))


@given(seed=st.integers(0, 1000), k=st.integers(2, 11))
def test_a_few_tokens_give_a_lower_bound_that_grows_with_their_number(seed: int, k: int):
    p, q = drawn(seed), drawn(seed + 1)
    fewer, more, whole = divergence(top(p, k - 1), q), divergence(top(p, k), q), divergence(p, q)
    assert bool((fewer <= more + 1e-9).all())
    assert bool((more <= whole + 1e-9).all())


def test_the_rest_counts_as_one_token():
    p, q = (
        Observed(torch.tensor([[x]], dtype=torch.float64).log()) for x in ([0.6, 0.3, 0.1], [0.2, 0.3, 0.5])
    )
    wanted = 0.6 * math.log(3) + 0.4 * math.log(0.4 / 0.8)
    assert divergence(top(p, 1), q).item() == pytest.approx(wanted)


@given(seed=st.integers(0, 1000), k=st.integers(1, 10), j=st.integers(1, 10))
def test_a_few_tokens_of_both_give_a_lower_bound_that_grows_with_their_number(seed: int, k: int, j: int):
    p, q = drawn(seed), drawn(seed + 1)
    fewer, more = divergence(top(p, k), top(q, j)), divergence(top(p, k + 1), top(q, j))
    assert bool((fewer <= divergence(top(p, k), top(q, j + 1)) + 1e-9).all())
    assert bool((fewer <= more + 1e-9).all())
    assert bool((more <= divergence(p, q) + 1e-9).all())


def reported(probabilities: dict[int, float], unnamed: float | None = None) -> Observed:
    """Some tokens after one prompt."""
    logs = torch.tensor([[list(probabilities.values())]], dtype=torch.float64).log()
    rest = None if unnamed is None else torch.tensor([[unnamed]], dtype=torch.float64).log()
    return Observed(logs, torch.tensor([[list(probabilities)]]), rest)


def test_disjoint_tokens_differ_by_what_the_smallest_reported_leaves_them():
    p, q = reported({5: 0.98, 6: 0.01}), reported({7: 0.98, 8: 0.01})
    assert divergence(p, q).item() == pytest.approx(0.97 * math.log(98))
    assert shared(p, q).item() == 0
    partly = reported({5: 0.9, 7: 0.05})
    wanted = 0.05 * math.log(0.05 / 0.98) + 0.9 * math.log(0.9 / 0.01) + 0.05 * math.log(0.05 / 0.01)
    assert divergence(partly, q).item() == pytest.approx(wanted)
    assert shared(partly, q).item() == pytest.approx(0.05)


def test_a_token_without_a_known_id_may_be_one_of_the_others():
    assert reported({7: 0.05, 8: 0.01}).most().item() == pytest.approx(0.01)
    assert reported({7: 0.6, 8: 0.39}).most().item() == pytest.approx(0.01)
    assert reported({7: 0.05, 8: 0.01}, 0.9).most().item() == pytest.approx(0.9)
    p = reported({5: 0.9, 6: 0.01})
    assert divergence(p, reported({7: 0.05, 8: 0.01}, 0.9)).item() < 0.1
    assert divergence(p, reported({7: 0.05, 8: 0.01})).item() > 3
    with pytest.raises(ConfigError, match="not finite"):
        reported({7: 0.05}, math.nan)


def test_what_both_report_is_all_of_whole_distributions_and_a_part_of_others():
    p = drawn(0)
    assert bool((shared(p, p) == 1).all())
    few = top(p, 3)
    assert shared(p, few).numpy() == pytest.approx(few.logs.exp().sum(-1).numpy())


def test_tokens_that_are_not_reported_are_left_out():
    logs = torch.tensor([[[0.5, 0.25]]], dtype=torch.float64).log()
    short = Observed(torch.cat([logs, torch.full((1, 1, 1), -1e4, dtype=torch.float64)], -1),
                     torch.tensor([[[2, 0, NO_TOKEN]]]))  # fmt: skip
    found = short.of(torch.tensor([[[0, 1, NO_TOKEN]]]))
    assert found[0, 0, 0].item() == pytest.approx(math.log(0.25))
    assert bool(found[0, 0, 1:].isnan().all())
    assert short.best(2).tolist() == [[[2, 0]]]


def test_agreement_and_rank_correlation():
    p = drawn(0)
    assert bool((agreement(p, p, 5) == 1).all())
    assert rank_correlations(p, p, 6) == pytest.approx(1)
    assert rank_correlations(p, Observed((-p.logs).log_softmax(-1)), 6) == pytest.approx(-1)
    assert float(agreement(p, Observed((-p.logs).log_softmax(-1)), 5).max()) == 0


def test_log_probabilities_must_be_finite():
    with pytest.raises(ConfigError, match="not finite"):
        Observed(torch.tensor([[[0.0, math.nan]]]))


def test_agreement_is_not_counted_where_fewer_tokens_are_reported():
    whole = Observed(torch.randn(2, 3, 20).log_softmax(-1))
    best = whole.best(6)
    logs = whole.of(best)
    best[0, 0, 2:], best[1, 1, 5:] = NO_TOKEN, NO_TOKEN
    some = Observed(logs.masked_fill(best == NO_TOKEN, 0.0), best)
    for pair in ((whole, some), (some, whole)):
        shared = agreement(*pair, 5)
        assert shared.isnan().nonzero().tolist() == [[0, 0]]
        assert bool((shared.nan_to_num(1.0) == 1).all())
    assert bool(agreement(Observed(logs[..., :4], best[..., :4]), whole, 5).isnan().all())
