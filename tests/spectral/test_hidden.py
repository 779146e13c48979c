"""Content and position in hidden states, and the sixteen logit terms."""

import math

import numpy as np
import pytest
import torch

from spectrope.core.errors import ConfigError
from spectrope.spectral import balanced_effects, effect_shares, least_squares_effects, logit_terms
from spectrope.spectral.hidden import PARTS


def states(w, p, d, seed, content=1.0, position=1.0, noise=1.0):
    rng = torch.Generator().manual_seed(seed)
    c, s, r = (
        torch.randn(*shape, generator=rng, dtype=torch.float64) for shape in ((w, 1, d), (1, p, d), (w, p, d))
    )
    return content * c + position * s + noise * r


def test_balanced_effects_are_orthogonal_and_add_up():
    x = states(5, 7, 4, 0)
    parts = balanced_effects(x).parts()
    torch.testing.assert_close(sum(parts), x.flatten(0, 1))
    for a in range(4):
        for b in range(a):
            assert (parts[a] * parts[b]).sum().abs().item() < 1e-12
    shares = effect_shares(balanced_effects(x))
    assert shares.content + shares.position + shares.residual == pytest.approx(1)


def test_the_paper_assumes_a_residual_of_zero_which_layer_norm_alone_breaks():
    """Assumption 3.1: x = c + p holds for input embeddings; LayerNorm leaves a residual of .02 to 1.3 %."""
    x = states(30, 20, 64, 0, noise=0.0)
    assert effect_shares(balanced_effects(x)).residual < 1e-25
    normed = torch.nn.functional.layer_norm(x, (64,))
    assert 2e-4 < effect_shares(balanced_effects(normed)).residual < 0.03


def test_shares_of_noise_have_the_stated_null():
    draws = [effect_shares(balanced_effects(states(6, 9, 3, s, 0.0, 0.0))) for s in range(150)]
    for name in ("position", "content"):
        values = np.array([getattr(d, name) for d in draws])
        assert abs(values.mean() - getattr(draws[0], f"{name}_null")) < 3.5 * values.std() / math.sqrt(150)
    assert draws[0].position_null == (9 - 1) / (6 * 9 - 1)


def test_sixteen_terms_are_orthogonal_on_a_balanced_design():
    effects = balanced_effects(states(4, 5, 6, 0))
    form = torch.randn(6, 6, dtype=torch.float64)
    terms = logit_terms(effects, form)
    x = effects.mean + effects.content + effects.position + effects.residual
    off = terms.gram - torch.diag(terms.gram.diagonal())
    assert off.abs().max().item() < 1e-10 * terms.gram.max().item()
    assert terms.gram.sum().item() == pytest.approx(((x @ form @ x.T) ** 2).sum().item())
    assert sum(terms.shares.values()) == pytest.approx(1)
    assert set(terms.shares) == {(a, b) for a in PARTS for b in PARTS}


def test_the_gram_of_terms_on_text_equals_the_dense_one_and_is_not_diagonal():
    rng = torch.Generator().manual_seed(0)
    tokens, positions = torch.randint(0, 7, (90,), generator=rng), torch.arange(90) % 30
    x = torch.randn(90, 5, generator=rng, dtype=torch.float64)
    effects = least_squares_effects(x, tokens, positions)
    form = torch.randn(5, 5, generator=rng, dtype=torch.float64)
    flat = torch.stack([a @ form @ b.T for a in effects.parts() for b in effects.parts()]).flatten(1)
    terms = logit_terms(effects, form)
    torch.testing.assert_close(terms.gram, flat @ flat.T, atol=1e-10 * terms.gram.max().item(), rtol=1e-9)
    off = terms.gram - torch.diag(terms.gram.diagonal())
    assert off.abs().max().item() > 1e-2 * terms.gram.max().item()


def test_the_fit_on_text_is_that_of_least_squares_and_agrees_with_the_balanced_one():
    rng = torch.Generator().manual_seed(0)
    tokens, positions = torch.randint(0, 9, (120,), generator=rng), torch.arange(120) % 40
    x = torch.randn(120, 2, generator=rng, dtype=torch.float64)
    design = np.hstack([np.eye(9)[tokens.numpy()], np.eye(40)[positions.numpy()]])
    fit = design @ np.linalg.lstsq(design, x.numpy(), rcond=None)[0]
    effects = least_squares_effects(x, tokens, positions)
    np.testing.assert_allclose((x - effects.residual).numpy(), fit, atol=1e-8)
    grid = states(4, 6, 3, 1)
    w, p = torch.meshgrid(torch.arange(4), torch.arange(6), indexing="ij")
    found = least_squares_effects(grid.flatten(0, 1), w.flatten(), p.flatten())
    for one, other in zip(found.parts(), balanced_effects(grid).parts(), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: balanced_effects(torch.ones(1, 5, 2)), r"W, P >= 2; got \(1, 5, 2\)"),
        (lambda: balanced_effects(torch.full((2, 2, 2), math.nan)), "x must be finite"),
        (lambda: effect_shares(balanced_effects(torch.ones(2, 3, 2))), "must not all be equal"),
        (
            lambda: least_squares_effects(torch.ones(4, 2), torch.arange(3), torch.arange(4)),
            r"tokens must have shape \(4,\)",
        ),
        (
            lambda: least_squares_effects(torch.ones(4, 2), torch.arange(4), torch.ones(4, 1)),
            "positions must have shape",
        ),
        (
            lambda: logit_terms(balanced_effects(states(2, 2, 3, 0)), torch.ones(2, 2)),
            r"form must have shape \(3, 3\)",
        ),
        (
            lambda: logit_terms(balanced_effects(states(2, 2, 3, 0)), torch.zeros(3, 3)).shares,
            "must not all be zero",
        ),
    ],
)
def test_wrong_input_is_refused_in_one_line(call, match):
    with pytest.raises(ConfigError, match=match):
        call()
