"""Terms of content and position against dense arithmetic, and the Toeplitz factor of known logits."""

import pytest
import torch
from torch.testing import assert_close

from spectrope.core.errors import ConfigError
from spectrope.spectral import (
    SplitVectors,
    balanced_effects,
    commutes_with_rotations,
    commuting_share,
    factorisation_residuals,
    logit_matrices,
    position_factor,
    term_energies,
)


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_parts_of_a_balanced_design_are_the_effects_of_token_and_position():
    content, position = random(5, 1, 3), random(1, 7, 3, seed=1)
    split = SplitVectors.of(balanced_effects(content + position))
    assert_close(split.interaction, torch.zeros_like(split.interaction))
    expected = (position - position.mean(1)).expand(5, 7, 3).flatten(0, 1)
    assert_close(split.position, expected)
    assert_close(split.total, (content + position).flatten(0, 1))


def test_terms_are_products_of_parts_and_the_rest_is_interaction():
    q, k = (SplitVectors(*random(3, 2, 6, 4, seed=seed)) for seed in (0, 1))
    terms = logit_matrices(q, k)
    assert_close(terms["content-position"], q.content @ k.position.mT)
    assert_close(terms["position-content"], q.position @ k.content.mT)
    rest = q.interaction @ k.total.mT + (q.content + q.position) @ k.interaction.mT
    assert_close(terms["interaction"], rest)


@pytest.mark.parametrize("causal", [False, True])
def test_shares_and_covariances_sum_to_one_and_ignore_row_effects(causal):
    terms = random(5, 3, 6, 6)
    energies = term_energies(terms, causal)
    assert (energies.share + energies.covariance).sum().item() == pytest.approx(1)
    moved = term_energies(terms + random(5, 3, 6, 1, seed=2), causal)
    assert_close(moved.share, energies.share)
    assert_close(moved.covariance, energies.covariance)


def test_orthogonal_terms_have_no_covariance_and_no_energy_is_no_number():
    wave = torch.tensor([[1.0, -1.0], [0.0, 0.0]]), torch.tensor([[0.0, 0.0], [2.0, -2.0]])
    energies = term_energies(torch.stack(wave))
    assert_close(energies.share, torch.tensor([0.2, 0.8], dtype=torch.float64))
    assert_close(energies.covariance, torch.zeros(2, dtype=torch.float64))
    assert term_energies(torch.zeros(2, 3, 3)).share.isnan().all()
    with pytest.raises(ConfigError, match=r"terms must have shape \(terms, \*b, n, n\)"):
        term_energies(torch.zeros(3, 3))


def test_the_commuting_share_is_one_for_rotations_and_one_in_d_for_random_forms():
    turn = torch.tensor([[0.6, -0.8], [0.8, 0.6]])
    form = torch.block_diag(turn, 3 * turn)
    assert commuting_share(form, 2) == pytest.approx(1)
    assert commutes_with_rotations(form, 2)
    d = 40
    shares = [commuting_share(random(d, d, seed=seed), d // 2) for seed in range(100)]
    assert sum(shares) / 100 == pytest.approx(1 / d, rel=0.1)
    with pytest.raises(ConfigError, match="form must not be zero"):
        commuting_share(torch.zeros(2, 2), 1)


@pytest.mark.parametrize("causal", [False, True])
def test_the_position_factor_leaves_the_residual_of_the_factorisation(causal):
    q, k = (torch.complex(random(1, 9, 3, seed=s), random(1, 9, 3, seed=s + 1)) for s in (0, 2))
    frequencies = torch.tensor([1.0, 0.3, 0.05], dtype=torch.float64)
    factor = position_factor(q, k, frequencies, causal)
    turn = torch.exp(1j * torch.outer(torch.arange(9.0).double(), frequencies))
    logits, content = (q * turn) @ (k * turn).mH, q @ k.mH
    lag = torch.arange(9)[:, None] - torch.arange(9)
    if causal:
        logits, content = logits.tril(), content.tril()
    fitted = content * factor[lag.clamp(min=0) if causal else lag + 8]
    residual = (logits - fitted).norm() ** 2 / logits.norm() ** 2
    assert residual.item() == pytest.approx(factorisation_residuals(q, k, frequencies, causal=causal).item())


def test_entries_that_a_causal_query_does_not_see_are_not_read():
    terms = torch.randn(2, 5, 5)
    unseen = torch.ones(5, 5, dtype=torch.bool).triu(1)
    seen = term_energies(terms, causal=True)
    hidden = term_energies(terms.masked_fill(unseen, -torch.inf), causal=True)
    assert_close(hidden.share, seen.share)
