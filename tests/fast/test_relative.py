"""Monomials of unrotated vectors by FFT against exact attention: values, gradients, masks, bounds."""

import dataclasses
import math

import pytest
import torch
from torch.testing import assert_close

from spectrope.attention import IMPLEMENTATIONS, attention
from spectrope.core.errors import UnsupportedError
from spectrope.encodings.base import ENCODINGS, Context, Form, Tag
from spectrope.encodings.imaginary import RoPEPlusPlus
from spectrope.encodings.rope import RoPE
from spectrope.encodings.xpos import XPos
from spectrope.fast import planning, relative
from spectrope.fast.costs import Shape, relative_operations
from spectrope.fast.entries import relative_entries
from spectrope.fast.planning import forecast, plan
from spectrope.fast.polynomial import planned_attention
from spectrope.fast.relative import EntryLags
from spectrope.fast.rotation import FORMS
from spectrope.fast.toeplitz import Terms, normalised
from spectrope.spectral import fast_length

HEADS, DIM = 2, 4
ROPE = RoPE(RoPE.Config(head_dim=DIM))


def served() -> dict:
    """Every registered encoding of a form and law that this algorithm takes."""
    sizes = {"d_model": HEADS * DIM, "n_heads": HEADS, "head_dim": DIM, "max_length": 80, "causal": True}
    built = {name: ENCODINGS.config(name)().fitted(**sizes).build() for name in ENCODINGS}
    mixing = {"rope_pp"}  # Refused, see below.
    return {
        name: e
        for name, e in built.items()
        if e.form in FORMS and Tag.SHIFT_INVARIANT in e.tags and name not in mixing
    }


ENCODED = served()


def context(n_q: int, n_k: int, scale: float = 0.03, dtype=torch.float64) -> tuple[Context, torch.Tensor]:
    draw = torch.Generator().manual_seed(n_q + 7 * n_k)
    q = scale * torch.randn(2, HEADS, n_q, DIM, generator=draw, dtype=torch.float64)
    k, v = torch.randn(2, 2, HEADS, n_k, DIM, generator=draw, dtype=torch.float64)
    pos = torch.arange(n_k)[None]
    return Context(q.to(dtype), k.to(dtype), pos[:, -n_q:], pos), v.to(dtype)


def error(ctx: Context, v: torch.Tensor, encoding, causal: bool) -> float:
    with torch.no_grad():
        out, truth = (
            attention(ctx, v, encoding, causal=causal, impl=i) for i in ("relative_fft", "reference")
        )
    return float((out.double() - truth).abs().max() / v.abs().max())


def test_rotations_and_lag_biases_are_among_the_cases():
    assert {"rope", "xpos", "alibi", "kerple_log", "nope"} <= set(ENCODED)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("name", ENCODED)
def test_every_encoding_keeps_the_tolerance(name, causal):
    assert error(*context(21, 21), ENCODED[name], causal) <= 1e-2


def test_heads_that_read_other_heads_are_refused():
    mixed = RoPEPlusPlus(RoPEPlusPlus.Config(n_heads=HEADS, head_dim=DIM))
    with pytest.raises(UnsupportedError, match="RoPEPlusPlus computes some heads from the vectors of others"):
        error(*context(5, 5), mixed, causal=True)


@pytest.mark.parametrize(("n_q", "n_k"), [(1, 1), (2, 2), (5, 40), (63, 63)])
def test_lengths(n_q, n_k):
    assert error(*context(n_q, n_k), ROPE, causal=True) <= 1e-2


def test_entries_of_rope_are_cosines_and_sines_of_the_lag():
    ctx, _ = context(6, 6)
    found = relative_entries(ctx, ROPE, causal=False)
    assert len(found.query_axes) == 2 * DIM
    lags = torch.arange(-5, 6, dtype=torch.float64)
    for query, key, weights in zip(found.query_axes, found.key_axes, found.weights[0], strict=True):
        assert query // 2 == key // 2
        angle = lags * 10_000 ** (-2 * int(query // 2) / DIM)
        sign = 1 if query < key else -1
        assert_close(weights, angle.cos() if query == key else sign * angle.sin(), atol=1e-7, rtol=0)
    assert found.gain(0, DIM) == pytest.approx(2, abs=0.3)


def test_products_of_entries_make_the_exact_logits():
    ctx, _ = context(9, 9)
    entries = relative_entries(ctx, ROPE, causal=False)
    q, k = ctx.q[..., entries.query_axes], ctx.k[..., entries.key_axes]
    lag = torch.arange(9)[:, None] - torch.arange(9)
    made = (q[..., :, None, :] * k[..., None, :, :] * entries.weights[0].T[lag + 8]).sum(-1)
    turned = [ROPE.rotate(x, ctx.q_pos, side) for x, side in ((ctx.q, "query"), (ctx.k, "key"))]
    assert_close(made, turned[0] @ turned[1].mT, atol=1e-7, rtol=0)


def test_gradients_are_those_of_exact_attention_at_a_fine_tolerance(monkeypatch):
    monkeypatch.setattr(relative, "TOLERANCE", 1e-6)
    ctx, v = context(12, 12)
    leaves = [x.requires_grad_() for x in (ctx.q, ctx.k, v)]
    upstream = torch.randn(v.shape, generator=torch.Generator().manual_seed(1), dtype=v.dtype)
    ours, theirs = (
        torch.autograd.grad((attention(ctx, v, ROPE, causal=True, impl=impl) * upstream).sum(), leaves)
        for impl in ("relative_fft", "reference")
    )
    for mine, wanted in zip(ours, theirs, strict=True):
        assert_close(mine, wanted, rtol=1e-3, atol=1e-6)


def test_hidden_keys_are_never_read():
    ctx, v = context(15, 15)
    seen = torch.rand(2, 1, 1, 15, generator=torch.Generator().manual_seed(0)) < 0.6
    hidden = ~seen.mT
    masked = dataclasses.replace(ctx, mask=seen)
    poisoned = dataclasses.replace(masked, k=ctx.k.masked_fill(hidden, math.nan))
    out = attention(poisoned, v.masked_fill(hidden, math.nan), ROPE, causal=True, impl="relative_fft")
    assert_close(out, attention(masked, v, ROPE, causal=True, impl="relative_fft"))
    assert out.isfinite().all()


def test_xpos_is_served_where_its_rotated_keys_overflow_every_certificate():
    n, xpos = 6000, XPos(XPos.Config(head_dim=2))
    draw = torch.Generator().manual_seed(0)
    q, k, v = torch.randn(3, 1, 1, n, 2, generator=draw)
    pos = torch.arange(n)[None]
    ctx = Context(0.05 * q, k, pos, pos)
    for impl in ("polynomial", "toeplitz_fft"):
        with pytest.raises(UnsupportedError, match=f"'{impl}' cannot serve head 0"):
            attention(ctx, v, xpos, causal=True, impl=impl)
    with torch.no_grad():
        out = attention(ctx, v, xpos, causal=True, impl="relative_fft")
    entries = relative_entries(ctx, xpos, causal=True)
    last = (0.05 * q)[0, 0, -1, entries.query_axes] * 2**-0.5 * k[0, 0][:, entries.key_axes]
    logits = (last.double() * entries.weights[0].T[n - 1 :].flip(0)).sum(-1)
    truth = logits.softmax(0) @ v[0, 0].double()
    assert (out[0, 0, -1] - truth).abs().max() <= 1e-2 * v.abs().max()


def test_what_cannot_be_certified_is_refused_by_name():
    ctx, v = context(10, 10, scale=100.0)
    with pytest.raises(UnsupportedError, match=r"'relative_fft' cannot serve head 0 within 0\.01"):
        attention(ctx, v, ROPE, causal=True, impl="relative_fft")
    apart = dataclasses.replace(ctx, q_pos=2 * ctx.q_pos, k_pos=2 * ctx.k_pos)
    with pytest.raises(UnsupportedError, match="needs consecutive positions"):
        attention(apart, v, ROPE, causal=True, impl="relative_fft")
    fope = ENCODINGS.config("fope")().fitted(head_dim=DIM, n_heads=HEADS, max_length=80).build()
    assert "needs SHIFT_INVARIANT" in str(IMPLEMENTATIONS["relative_fft"].objection(fope, v.device, None))
    assert not IMPLEMENTATIONS["relative_fft"].exact
    empty = torch.zeros(0, HEADS, 5, DIM)
    at = Context(empty, empty, torch.arange(5)[None], torch.arange(5)[None])
    assert attention(at, empty, ROPE, causal=True, impl="relative_fft").shape == empty.shape
    assert ENCODED["rope"].form is Form.DOT


def decaying(n: int, dim: int, scale: float) -> tuple[Context, XPos]:
    """One head of xPos, whose rotated keys grow with the position."""
    q, k = torch.randn(2, 1, 1, n, dim, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    pos = torch.arange(n)[None]
    return Context(scale * q, k, pos, pos), XPos(XPos.Config(head_dim=dim))


class TestPlans:
    def test_xpos_is_planned_by_unrotated_vectors_where_that_costs_least(self):
        ctx, xpos = decaying(16_384, 2, 0.02)
        [head] = plan(ctx, xpos, causal=True).heads
        assert (head.choice, head.kernel) == ("relative", "relative")
        assert head.speedup_estimate > 1
        [short] = plan(*decaying(200, 2, 0.02), causal=True).heads
        assert short.choice == "exact"

    def test_a_planned_head_keeps_its_certificate_and_has_the_gradient_of_exact_attention(self):
        ctx, xpos = decaying(40, 4, 0.03)
        v = torch.randn(1, 1, 40, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        leaves = [x.requires_grad_() for x in (ctx.q, ctx.k, v)]
        made = plan(ctx, xpos, 1e-6, causal=True, kernels=("relative",)).with_all_fast()
        assert [head.choice for head in made.heads] == ["relative"]
        outputs = planned_attention(ctx, v, xpos, made), attention(ctx, v, xpos, causal=True)
        assert (outputs[0] - outputs[1]).abs().max() <= made.error_bound * v.abs().max()
        ours, theirs = (torch.autograd.grad(out.square().sum(), leaves) for out in outputs)
        for mine, wanted in zip(ours, theirs, strict=True):
            assert_close(mine, wanted, rtol=1e-3, atol=1e-5)

    def test_a_forecast_knows_that_rotated_keys_grow_with_the_position(self):
        [narrow] = forecast(*decaying(32, 2, 0.02), 65_536, causal=True)
        assert narrow.choice == "relative"
        assert narrow.reach_bound < 1
        [wide] = forecast(*decaying(32, 16, 0.02), 65_536, causal=True)
        assert wide.choice == "exact"

    def test_where_rotation_keeps_norms_no_entries_are_made(self, monkeypatch):
        monkeypatch.setattr(planning, "relative_entries", lambda *_: pytest.fail("entries were made"))
        for scale in (0.03, 3.0):
            ctx, _ = context(30, 30, scale)
            assert {head.kernel for head in plan(ctx, ROPE, causal=True).heads} <= {"polynomial", "fft"}


def test_points_of_transforms_are_those_that_torch_is_asked_for(monkeypatch):
    n, asked = 200, []
    for name in ("rfft", "irfft"):
        real = getattr(torch.fft, name)
        count = lambda x, points, real=real: asked.append(x[..., 0].numel() * points) or real(x, points)  # noqa: E731
        monkeypatch.setattr(torch.fft, name, count)
    q, k = torch.zeros(2, 1, 1, n, 8, dtype=torch.float64)
    entries = torch.ones(8, 2 * n - 1, dtype=torch.float64)
    terms, points = Terms.of(8, (1.0,) * 3), fast_length(2 * n - 1)
    v, lags = torch.zeros(1, 1, n, DIM, dtype=torch.float64), EntryLags(entries, entries[:1])
    normalised(terms, q, k, v, lags, torch.zeros(1, n, dtype=torch.bool))
    counted = relative_operations(Shape(1, n, n, DIM, True), len(terms.weights)).transforms
    assert sum(asked) * math.log2(points) == pytest.approx(counted)
