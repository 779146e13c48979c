"""Toeplitz terms by FFT against dense attention: lag biases, gradients, masks, bounds."""

import copy
import dataclasses
import math

import pytest
import torch
from torch.testing import assert_close

from spectrope.attention import IMPLEMENTATIONS, attention
from spectrope.core.errors import UnsupportedError
from spectrope.encodings.alibi import ALiBi
from spectrope.encodings.base import ENCODINGS, Context, Form
from spectrope.encodings.nope import NoPE
from spectrope.encodings.rope import RoPE
from spectrope.fast import planning, toeplitz
from spectrope.fast.costs import Shape, fft_operations
from spectrope.fast.minimax import exp_polynomial
from spectrope.fast.planning import forecast, plan
from spectrope.fast.polynomial import planned_attention
from spectrope.fast.toeplitz import SharedLags, Terms, normalised
from spectrope.fast.transforms import lag_sizes, lag_table
from spectrope.spectral import fast_length

HEADS, DIM = 2, 4


def biased() -> dict:
    """Every registered encoding that adds a bias of the lag, and those that add none."""
    sizes = {"d_model": HEADS * DIM, "n_heads": HEADS, "head_dim": DIM, "max_length": 80, "causal": True}
    built = {name: ENCODINGS.config(name)().fitted(**sizes).build() for name in ENCODINGS}
    return {name: made for name, made in built.items() if made.form in (Form.DOT, Form.DOT_PLUS_LAG)}


ENCODED = biased()


def context(n_q: int, n_k: int, scale: float = 0.03, dtype=torch.float64) -> tuple[Context, torch.Tensor]:
    draw = torch.Generator().manual_seed(n_q + 7 * n_k)
    q = scale * torch.randn(2, HEADS, n_q, DIM, generator=draw, dtype=torch.float64)
    k, v = torch.randn(2, 2, HEADS, n_k, DIM, generator=draw, dtype=torch.float64)
    pos = torch.arange(n_k)[None]
    return Context(q.to(dtype), k.to(dtype), pos[:, -n_q:], pos), v.to(dtype)


def error(ctx: Context, v: torch.Tensor, name: str, causal: bool) -> float:
    with torch.no_grad():
        out, truth = (
            attention(ctx, v, ENCODED[name], causal=causal, impl=i) for i in ("toeplitz_fft", "reference")
        )
    return float((out.double() - truth).abs().max() / v.abs().max())


def test_the_lag_biases_that_no_scan_serves_are_among_the_cases():
    assert {"kerple_log", "kerple_power", "sandwich", "alibi", "t5", "rope", "nope"} <= set(ENCODED)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("name", ENCODED)
def test_every_lag_bias_keeps_the_tolerance(name, causal):
    assert error(*context(37, 37), name, causal) <= 1e-2


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("n_q", "n_k"), [(1, 1), (2, 2), (63, 63), (64, 64), (1, 65), (5, 40)])
def test_lengths(n_q, n_k, causal):
    assert error(*context(n_q, n_k), "kerple_log", causal) <= 1e-2


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("degree", [1, 2, 3])
@pytest.mark.parametrize("n", [1, 2, 33])
def test_sums_of_terms_equal_dense_sums(n, degree, causal, monkeypatch):
    monkeypatch.setattr(toeplitz, "TERM_ENTRIES", 4000)  # several chunks of terms
    draw = torch.Generator().manual_seed(n)
    q, k, v = (0.3 * torch.randn(3, 1, 2, n, 3, generator=draw, dtype=torch.float64)).requires_grad_()
    lags = torch.rand(2, 2 * n - 1, generator=draw, dtype=torch.float64)
    lags[:, : n - 1] *= not causal
    lags.requires_grad_()
    coefficients = exp_polynomial(degree, -1.0, 1.0).coefficients
    blind = torch.zeros(1, n, dtype=torch.bool)
    out = normalised(Terms.of(3, coefficients), q, k, v, SharedLags(lags), blind)
    lag = torch.arange(n)[:, None] - torch.arange(n)
    weight = sum(a * (q @ k.mT) ** m for m, a in enumerate(coefficients)) * lags[:, lag + n - 1]
    dense = (weight @ v) / weight.sum(-1, keepdim=True)
    assert_close(out, dense)
    upstream = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out)
    for ours, theirs in zip(
        *(torch.autograd.grad((o * upstream).sum(), (q, k, v, lags)) for o in (out, dense)), strict=True
    ):
        assert_close(ours, theirs)


@pytest.mark.parametrize("variables", [1, 3])
@pytest.mark.parametrize("degree", [1, 2, 4])
def test_terms_expand_the_polynomial_of_a_sum(variables, degree):
    coefficients = tuple(1.0 / (m + 1) for m in range(degree + 1))
    terms = Terms.of(variables, coefficients)
    assert len(terms.weights) == math.comb(variables + degree, degree)
    x = torch.randn(5, variables, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    expected = sum(a * x.sum(-1) ** m for m, a in enumerate(coefficients))
    assert_close(terms.products(x) @ terms.weights, expected)


@pytest.mark.parametrize("causal", [True, False])
def test_gradients_reach_queries_keys_values_and_what_the_bias_learns(causal, monkeypatch):
    monkeypatch.setattr(toeplitz, "TOLERANCE", 1e-6)
    ctx, v = context(20, 20)
    leaves = [x.requires_grad_() for x in (ctx.q, ctx.k, v)]
    leaves += list(ENCODED["kerple_log"].parameters())
    upstream = torch.randn(v.shape, generator=torch.Generator().manual_seed(1), dtype=v.dtype)
    ours, theirs = (
        torch.autograd.grad(
            (attention(ctx, v, ENCODED["kerple_log"], causal=causal, impl=impl) * upstream).sum(), leaves
        )
        for impl in ("toeplitz_fft", "reference")
    )
    for mine, wanted in zip(ours, theirs, strict=True):
        assert_close(mine, wanted, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("causal", [True, False])
def test_hidden_keys_are_never_read_and_blind_queries_get_nothing(causal):
    ctx, v = context(30, 30)
    seen = torch.rand(2, 1, 1, 30, generator=torch.Generator().manual_seed(0)) < 0.6
    seen[1, ..., :9] = False
    hidden = ~seen.mT
    poisoned = dataclasses.replace(ctx, k=ctx.k.masked_fill(hidden, math.nan), mask=seen)
    encoding = ALiBi(ALiBi.Config(n_heads=HEADS))
    out = attention(poisoned, v.masked_fill(hidden, math.nan), encoding, causal=causal, impl="toeplitz_fft")
    truth = attention(dataclasses.replace(ctx, mask=seen), v, encoding, causal=causal)
    blind = torch.isnan(truth)
    assert blind[1, :, :9].all() == causal
    assert (out[blind] == 0).all()
    assert (out - truth)[~blind].abs().max() <= 1e-2 * v.abs().max()


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("n", [4, 30])
def test_blind_queries_have_no_gradient_and_give_none(n, causal):
    ctx, v = context(n, n)
    leaves = [x.requires_grad_() for x in (ctx.q, ctx.k, v)]
    seen = torch.ones(2, 1, 1, n, dtype=torch.bool)
    seen[0, ..., :3] = False
    seen[1] = False
    masked = dataclasses.replace(ctx, mask=seen)
    out = attention(masked, v, NoPE(NoPE.Config()), causal=causal, impl="toeplitz_fft")
    gradients = torch.autograd.grad(out.square().sum(), leaves)
    assert all(gradient.isfinite().all() for gradient in gradients)
    assert all((gradient[1] == 0).all() for gradient in gradients)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_other_precisions_are_computed_in_float64(dtype):
    ctx, v = context(40, 40, dtype=dtype)
    out = attention(ctx, v, NoPE(NoPE.Config()), causal=True, impl="toeplitz_fft")
    assert out.dtype == dtype
    wide = dataclasses.replace(ctx, q=ctx.q.double(), k=ctx.k.double())
    truth = attention(wide, v.double(), NoPE(NoPE.Config()), causal=True)
    assert (out.double() - truth).abs().max() <= 1e-2 * v.double().abs().max()


def test_what_cannot_be_certified_is_refused():
    ctx, v = context(20, 20, scale=30.0)
    with pytest.raises(
        UnsupportedError, match=r"'toeplitz_fft' cannot serve head 0 within 0\.01: its logits reach"
    ):
        attention(ctx, v, NoPE(NoPE.Config()), causal=True, impl="toeplitz_fft")
    ctx, v = context(300, 300)
    masked = dataclasses.replace(ctx, mask=torch.ones(1, 1, 1, 300, dtype=torch.bool))
    with pytest.raises(UnsupportedError, match=r"its weights of lags fall to [\d.]+e-"):
        attention(masked, v, ALiBi(ALiBi.Config(n_heads=HEADS)), causal=True, impl="toeplitz_fft")
    with pytest.raises(UnsupportedError, match="consecutive"):
        attention(
            dataclasses.replace(ctx, q_pos=ctx.q_pos + 1),
            v,
            ENCODED["alibi"],
            causal=True,
            impl="toeplitz_fft",
        )
    assert not IMPLEMENTATIONS["toeplitz_fft"].exact


def test_the_bound_of_transforms_holds(monkeypatch):
    """With transforms in float32 their error is visible, and stays within the bound for that precision."""
    ctx, v = context(200, 200)
    encoding = copy.deepcopy(ENCODED["kerple_log"]).requires_grad_(False)
    found: list[float] = []
    bound = planning.transform_bound
    monkeypatch.setattr(planning, "transform_bound", lambda *given: found.append(bound(*given)) or found[-1])
    exact = attention(ctx, v, encoding, causal=True, impl="toeplitz_fft")
    coarse = torch.fft.rfft
    monkeypatch.setattr(torch.fft, "rfft", lambda x, n: coarse(x.float(), n).to(torch.complex128))
    rough = attention(ctx, v, encoding, causal=True, impl="toeplitz_fft")
    moved = float((rough - exact).abs().max() / v.abs().max())
    assert 0 < moved <= max(found) * torch.finfo(torch.float32).eps / torch.finfo(torch.float64).eps


class TestPlans:
    @pytest.mark.parametrize("causal", [True, False])
    def test_a_bias_that_no_scan_serves_is_planned_and_computed_by_fft(self, causal):
        ctx, v = context(60, 60)
        encoding = copy.deepcopy(ENCODED["kerple_log"]).requires_grad_(False)
        made = plan(ctx, encoding, causal=causal).with_all_fast()
        assert {head.choice for head in made.heads} == {"fft"}
        out = planned_attention(ctx, v, encoding, made)
        truth = attention(ctx, v, encoding, causal=causal)
        assert (out - truth).abs().max() <= made.error_bound * v.abs().max()
        assert made.error_bound <= 1e-2

    def test_without_fft_such_a_bias_is_exact_and_says_why(self):
        ctx, _ = context(60, 60)
        long = dataclasses.replace(ctx, q=ctx.q[..., :1, :].expand(-1, -1, 3000, -1))
        long = dataclasses.replace(
            long, k=long.q, q_pos=torch.arange(3000)[None], k_pos=torch.arange(3000)[None]
        )
        encoding = copy.deepcopy(ENCODED["kerple_log"]).requires_grad_(False)
        blocked, both = (
            plan(long, encoding, causal=True, kernels=kernels).heads[0]
            for kernels in (("polynomial",), ("polynomial", "fft"))
        )
        assert "needs a lag bias that is straight" in blocked.reason
        assert (both.choice, both.kernel) == ("fft", "fft")

    def test_where_neither_serves_the_reason_names_both(self):
        ctx, _ = context(60, 60)
        far = dataclasses.replace(ctx, q=1e4 * ctx.q)
        learned = copy.deepcopy(ENCODED["kerple_log"]).requires_grad_()
        reason = plan(far, learned, causal=True).heads[0].reason
        assert "has no gradient for the lag bias" in reason
        assert "by FFT, no degree up to 16" in reason

    def test_rotation_is_planned_over_blocks_where_both_serve(self):
        x = 0.1 * torch.randn(1, 1, 60, 16, generator=torch.Generator().manual_seed(0))
        pos, rope = torch.arange(60)[None], RoPE(RoPE.Config(head_dim=16))
        [head] = forecast(Context(x, x, pos, pos), rope, 65_536, causal=True)
        assert head.choice == "polynomial"

    def test_a_plan_for_inputs_of_float32_counts_their_rounding(self):
        found = {}
        for dtype in (torch.float32, torch.float64):
            ctx, _ = context(60, 60, scale=0.3, dtype=dtype)
            [head, _] = plan(ctx, ENCODED["nope"], causal=True, kernels=("fft",)).heads
            found[dtype] = head.certificate.epsilon_bound
        assert found[torch.float32] > found[torch.float64]

    @pytest.mark.parametrize("causal", [True, False])
    @pytest.mark.parametrize("name", ["rope", "kerple_log"])
    def test_sizes_are_those_of_the_table(self, name, causal):
        ctx, _ = context(20, 33)
        encoding = copy.deepcopy(ENCODED[name]).requires_grad_(False)
        short, whole = lag_sizes(ctx, encoding, causal), lag_table(ctx, encoding, causal).sizes
        assert dataclasses.astuple(short) == pytest.approx(dataclasses.astuple(whole))


@pytest.mark.parametrize(("rank", "degree", "n"), [(2, 2, 200), (4, 1, 1000)])
def test_points_of_transforms_are_those_that_torch_is_asked_for(rank, degree, n, monkeypatch):
    asked = []
    for name in ("rfft", "irfft"):
        real = getattr(torch.fft, name)
        monkeypatch.setattr(
            torch.fft,
            name,
            lambda x, points, real=real: asked.append(x[..., 0].numel() * points) or real(x, points),
        )
    q, k, v = torch.zeros(3, 1, 1, n, rank, dtype=torch.float64)
    lags = SharedLags(torch.ones(1, 2 * n - 1, dtype=torch.float64))
    terms = Terms.of(rank, (1.0,) * (degree + 1))
    normalised(terms, q, k, v, lags, torch.zeros(1, n, dtype=torch.bool))
    points = fast_length(2 * n - 1)
    counted = fft_operations(Shape(1, n, n, rank, True), len(terms.weights)).transforms
    of_lags = points * math.log2(points)
    assert sum(asked) * math.log2(points) == pytest.approx(counted + of_lags)
