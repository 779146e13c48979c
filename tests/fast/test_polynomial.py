"""Polynomial attention against dense sums: values, gradients, masks, groups, lag weights."""

import math

import pytest
import torch
from tests.fast.dense import dense_polynomial
from torch.testing import assert_close

from spectrope.core.errors import UnsupportedError
from spectrope.encodings.alibi import ALiBi
from spectrope.encodings.base import Context, LagBias
from spectrope.encodings.kerple import KerpleLog
from spectrope.encodings.t5 import T5
from spectrope.fast import chunkwise, monomials
from spectrope.fast.chunkwise import PolynomialWeights
from spectrope.fast.lag_weights import lag_weights
from spectrope.fast.minimax import exp_polynomial
from spectrope.fast.polynomial import polynomial_attention


class Cliff(LagBias):
    """Flat up to some lag and steep from there on; at lag 0 its steep line is beyond any float."""

    def lag_bias(self, lag):
        return -(lag.abs() - 20).clamp(min=0)[..., None] * torch.tensor([0.125, 1.0, 40.0, 100.0])


LENGTHS = [(1, 1), (2, 2), (63, 63), (64, 64), (65, 65), (1, 65), (5, 300), (300, 5), (300, 300)]
LAGS = {
    "alibi": ALiBi(ALiBi.Config(n_heads=4)),
    "one-sided alibi": ALiBi(ALiBi.Config(n_heads=4, symmetric=False)),
    "t5": T5(T5.Config(n_heads=4)).requires_grad_(False),
    "t5, distant buckets": T5(T5.Config(n_heads=4, max_distance=180)).requires_grad_(False),
    "cliff": Cliff(ALiBi.Config(n_heads=4)),
}


def weights(degree: int, causal: bool, lags=None) -> PolynomialWeights:
    return PolynomialWeights(exp_polynomial(degree, -0.5, 0.5).coefficients, causal, lags)


def inputs(n_q: int, n_k: int, *, groups: int = 1, dim: int = 5, dtype=torch.float64):
    draw = torch.Generator().manual_seed(n_q + 7 * n_k)
    shapes = (2, 4, n_q, dim), (2, 4 // groups, n_k, dim), (2, 4 // groups, n_k, 3)
    made = [torch.randn(*shape, generator=draw, dtype=dtype) for shape in shapes]
    made[0].mul_(0.2)
    return [x.requires_grad_() for x in made]


def compare(q, k, v, given: PolynomialWeights, factor=None, keys=None, **tolerance) -> None:
    out, expected = polynomial_attention(q, k, v, given, keys), dense_polynomial(q, k, v, given, factor, keys)
    assert_close(out, expected, **tolerance)
    upstream = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out)
    ours, theirs = (torch.autograd.grad((o * upstream).sum(), (q, k, v)) for o in (out, expected))
    for grad, wanted in zip(ours, theirs, strict=True):
        assert_close(grad, wanted, **tolerance)


@pytest.fixture
def short_chunks(monkeypatch):
    """Chunks so short that every length meets several."""
    monkeypatch.setattr(chunkwise, "LONGEST_CHUNK", 16)
    monkeypatch.setattr(chunkwise, "SHORTEST_CHUNK", 16)
    monkeypatch.setattr(monomials, "SUMMED", 16)
    monkeypatch.setattr(monomials, "CACHED_PRODUCTS", 2000)


@pytest.mark.sampled
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("degree", [1, 2, 3, 4])
@pytest.mark.parametrize(("n_q", "n_k"), LENGTHS)
@pytest.mark.usefixtures("short_chunks")
def test_equals_the_dense_sums(n_q, n_k, degree, causal):
    compare(*inputs(n_q, n_k), weights(degree, causal))


@pytest.mark.sampled
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("n", [1000, 4097])
def test_equals_the_dense_sums_at_length(n, causal):
    q, k, v = (x[:1, :1] for x in inputs(n, n))
    assert_close(
        polynomial_attention(q, k, v, weights(2, causal)), dense_polynomial(q, k, v, weights(2, causal))
    )


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("n_q", "n_k"), [(63, 63), (5, 300), (300, 300)])
@pytest.mark.usefixtures("short_chunks")
def test_heads_of_queries_share_keys(n_q, n_k, causal):
    compare(*inputs(n_q, n_k, groups=2), weights(2, causal))
    compare(*inputs(n_q, n_k, groups=4), weights(3, causal))


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.usefixtures("short_chunks")
def test_masked_keys_are_never_read_and_blind_queries_get_nothing(groups, causal):
    q, k, v = inputs(70, 70, groups=groups)
    keys = torch.rand(2, 70, generator=torch.Generator().manual_seed(0)) < 0.6
    keys[1, :33] = False  # whose first queries see no key at all when they see the past alone
    compare(q, k, v, weights(2, causal), keys=keys)
    hidden = ~keys[:, None, :, None]
    poisoned = [x.detach().masked_fill(hidden, float("nan")) for x in (k, v)]
    out = polynomial_attention(q, *poisoned, weights(2, causal), keys)
    assert_close(out, polynomial_attention(q, k, v, weights(2, causal), keys))
    assert (out[1, :, :33] == 0).all() == causal
    none = polynomial_attention(q, k, v, weights(2, causal), torch.zeros_like(keys))
    assert (none == 0).all()


@pytest.mark.sampled
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("name", LAGS)
@pytest.mark.parametrize(("n_q", "n_k"), [(1, 1), (2, 2), (63, 63), (5, 300), (300, 300)])
@pytest.mark.usefixtures("short_chunks")
def test_lag_biases_weigh_every_pair(n_q, n_k, name, causal):
    q, k, v = inputs(n_q, n_k)
    ctx = Context(q, k, torch.arange(n_k - n_q, n_k)[None], torch.arange(n_k)[None])
    with torch.no_grad():
        factor = LAGS[name].bias(ctx).exp()
        lags = lag_weights(ctx, LAGS[name], causal)
    compare(q, k, v, weights(2, causal, lags), factor)


@pytest.mark.usefixtures("short_chunks")
def test_lag_biases_of_heads_that_share_keys():
    q, k, v = inputs(50, 50, groups=2)
    ctx = Context(q, k, torch.arange(50)[None], torch.arange(50)[None])
    compare(q, k, v, weights(2, True, lag_weights(ctx, LAGS["alibi"], True)), LAGS["alibi"].bias(ctx).exp())


def test_rows_of_a_batch_taken_a_few_at_a_time_keep_their_heads(monkeypatch):
    q, k, v = inputs(150, 150)
    ctx = Context(q, k, torch.arange(150)[None], torch.arange(150)[None])
    given = weights(2, True, lag_weights(ctx, LAGS["alibi"], True))
    whole = polynomial_attention(q, k, v, given)
    monkeypatch.setattr(chunkwise, "CACHED_ENTRIES", 64 * 21 * 3)
    assert_close(polynomial_attention(q, k, v, given), whole)


@pytest.mark.parametrize("causal", [True, False])
def test_gradcheck(causal):
    q, k, v = (x.detach()[:, :2].requires_grad_() for x in inputs(6, 6, dim=2))
    assert torch.autograd.gradcheck(lambda *x: polynomial_attention(*x, weights(3, causal)), (q, k, v))


@pytest.mark.parametrize("n", [6, 450])
def test_second_derivatives_are_refused(n):
    q, k, v = (x.detach()[:, :2].requires_grad_() for x in inputs(n, n, dim=2))
    out = polynomial_attention(q, k, v, weights(3, True))
    (first,) = torch.autograd.grad(out.square().sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.square().sum().backward()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_lower_precisions_accumulate_in_float32(dtype):
    q, k, v = (x.detach().to(dtype) for x in inputs(600, 600))
    given = weights(2, True)
    exact = dense_polynomial(*(x.double() for x in (q, k, v)), given)
    out = polynomial_attention(q, k, v, given)
    assert out.dtype == dtype
    step = torch.finfo(dtype).eps
    assert_close(out.double(), exact, rtol=step, atol=1e-6)


@pytest.mark.parametrize("causal", [True, False])
def test_a_steep_tail_far_off_is_within_the_range_of_float32(causal):
    q, k, v = (x.detach().float() for x in inputs(900, 900))
    ctx = Context(q, k, torch.arange(900)[None], torch.arange(900)[None])
    given = weights(2, causal, lag_weights(ctx, LAGS["cliff"], causal))
    exact = dense_polynomial(*(x.double() for x in (q, k, v)), given, LAGS["cliff"].bias(ctx).double().exp())
    assert_close(polynomial_attention(q, k, v, given).double(), exact, rtol=1e-5, atol=1e-5)


def test_values_of_any_size_scale_the_output():
    q, k, v = (x.detach() for x in inputs(80, 80, dtype=torch.float32))
    out = polynomial_attention(q, k, v, weights(2, True))
    for factor in (2.0**100, 2.0**-100):
        assert_close(polynomial_attention(q, k, v * factor, weights(2, True)) / factor, out)


class Rising(LagBias):
    def lag_bias(self, lag):
        return lag.abs()[..., None] * 1e-3


def positions(n: int, shift: int = 0) -> Context:
    x = torch.zeros(1, 4, n, 2)
    return Context(x, x, torch.arange(n)[None] + shift, torch.arange(n)[None])


def test_what_has_no_falling_straight_tail_is_refused():
    log = KerpleLog(KerpleLog.Config(n_heads=4)).requires_grad_(False)
    for encoding in (log, Rising(ALiBi.Config(n_heads=4))):
        with pytest.raises(UnsupportedError, match=f"straight and does not rise.*{type(encoding).__name__}"):
            lag_weights(positions(3000), encoding, True)
        assert lag_weights(positions(100), encoding, True).past.start >= 98


def test_lags_must_be_those_of_the_indices():
    with pytest.raises(UnsupportedError, match="needs consecutive positions"):
        lag_weights(positions(5, shift=1), LAGS["alibi"], True)


def test_every_row_of_a_batch_must_start_where_its_queries_do():
    x, pos = torch.zeros(2, 4, 5, 2), torch.arange(5)[None]
    starts = torch.tensor([[0], [3]])
    lag_weights(Context(x, x, pos + starts, pos + starts), LAGS["alibi"], True)
    for q_pos, k_pos in ((pos, pos + starts), (pos + starts, pos)):
        with pytest.raises(UnsupportedError, match="needs consecutive positions"):
            lag_weights(Context(x, x, q_pos, k_pos), LAGS["alibi"], True)


def test_tails_are_those_of_the_source():
    """ALiBi is straight from the start; T5 constant from the first lag of its last bucket on."""
    tail = lag_weights(positions(700), LAGS["alibi"], True).past
    assert tail.start == 0
    assert_close(tail.rate, 2.0 ** -torch.tensor([2.0, 4, 6, 8], dtype=torch.float64))
    t5 = lag_weights(positions(700), LAGS["t5"], True).past
    assert t5.start == math.ceil(16 * 8 ** (15 / 16))
    assert (t5.rate == 0).all()
