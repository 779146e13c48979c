"""The certificate: never violated by random, adversarial and extreme inputs, and sharp where it can be."""

import dataclasses
import math

import pytest
import torch
from torch.testing import assert_close

from spectrope.attention import IMPLEMENTATIONS, attention
from spectrope.core.errors import ConfigError, UnsupportedError
from spectrope.encodings.alibi import ALiBi
from spectrope.encodings.base import Context, Encoding
from spectrope.encodings.nope import NoPE
from spectrope.encodings.rope import RoPE
from spectrope.encodings.shaw import Shaw
from spectrope.encodings.t5 import T5
from spectrope.fast import certificate, plan
from spectrope.fast.certificate import RoundingSetting, bound_logits, certify, mean_error, rounded_up
from spectrope.fast.minimax import exp_polynomial
from spectrope.fast.planning import fewest_features
from spectrope.fast.polynomial import planned_attention

HEADS, DIM = 3, 4
ENCODINGS = {
    "nope": NoPE(NoPE.Config()),
    "rope": RoPE(RoPE.Config(head_dim=DIM)),
    "alibi": ALiBi(ALiBi.Config(n_heads=HEADS)),
    "t5": T5(T5.Config(n_heads=HEADS)).requires_grad_(False),
}


def context(seed: int, n: int = 40, scale: float = 0.3, dtype=torch.float32) -> tuple[Context, torch.Tensor]:
    draw = torch.Generator().manual_seed(seed)
    q, k, v = torch.randn(3, 1, HEADS, n, DIM, generator=draw, dtype=torch.float64)
    k = k + 5 * torch.randn(1, HEADS, 1, DIM, generator=draw, dtype=torch.float64)
    pos = torch.arange(n)[None]
    return Context((scale * q).to(dtype), k.to(dtype), pos, pos), v.to(dtype)


def worst(ctx: Context, v: torch.Tensor, encoding: Encoding, causal: bool, tolerance: float) -> list[float]:
    """Each fast head's error over its certified bound; the truth is taken in float64."""
    made = plan(ctx, encoding, tolerance, causal=causal).with_all_fast()
    out = planned_attention(ctx, v, encoding, made).double()
    wide = dataclasses.replace(ctx, q=ctx.q.double(), k=ctx.k.double())
    truth = attention(wide, v.double(), encoding, causal=causal, impl="reference")
    seen = v if ctx.mask is None else v * ctx.mask[:, :, 0, :, None]
    errors = (out - truth).abs().amax((0, 2, 3)) / seen.abs().amax((0, 2, 3))
    return [
        float(errors[h.head]) / h.certificate.error_bound for h in made.heads if h.certificate is not None
    ]


@pytest.mark.sampled
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("name", ENCODINGS)
@pytest.mark.parametrize("tolerance", [1e-3, 1e-2, 0.2])
def test_no_random_case_violates_the_bound(name, causal, tolerance):
    ratios: list[float] = []
    for seed in range(6):
        for scale in (0.01, 0.1):
            ratios += worst(*context(seed, scale=scale), ENCODINGS[name], causal, tolerance)
    assert len(ratios) >= 6
    assert max(ratios) <= 1


@pytest.mark.sampled
@pytest.mark.parametrize("degree", [1, 2, 3, 4, 6])
def test_adversarial_weights_come_close_to_the_bound_and_never_pass_it(degree):
    """Keys where the error has its peaks, values ±1 by its sign: the mean moves nearly as far as it may."""
    ratios = []
    for case in range(150):
        reach = 0.05 * 1.033**case
        found = certify(reach, reach, 0.0, 1, degree, RoundingSetting(8, 1, torch.float64, torch.float64))
        if found is None or found.epsilon_bound < 1e-9:
            continue
        x = torch.linspace(-reach, reach, 2001, dtype=torch.float64)
        exact = x.exp()
        powers = torch.stack([x**m for m in range(degree + 1)])
        approximate = torch.tensor(found.polynomial.coefficients, dtype=torch.float64) @ powers
        relative = approximate / exact - 1
        for share in (0.5, 0.3):
            up, down = int(relative.argmax()), int(relative.argmin())
            truth = torch.tensor([share, 1 - share], dtype=torch.float64)
            moved = truth * (1 + relative[[up, down]])
            values = torch.tensor([1.0, -1.0], dtype=torch.float64)
            error = float((moved / moved.sum() - truth) @ values)
            ratios.append(abs(error) / found.error_bound)
    assert len(ratios) > 100
    assert 0.9 < max(ratios) <= 1


def test_the_formula_is_the_supremum_over_all_weights():
    for epsilon in (1e-9, 1e-3, 0.3, 0.9):
        s = torch.linspace(-1, 1, 200_001, dtype=torch.float64)
        supremum = float((epsilon * (1 - s**2) / (1 + epsilon * s)).max())
        assert mean_error(epsilon) == pytest.approx(supremum, rel=1e-6)


def test_a_seeded_violation_is_caught(monkeypatch):
    """A polynomial fitted to an eighth of the range breaks the bound that the random cases keep."""

    def narrow(degree, low, high):
        right = exp_polynomial(degree, low, high)
        wrong = exp_polynomial(degree, low / 8, high / 8)
        return dataclasses.replace(wrong, low=right.low, high=right.high)

    logits = torch.linspace(-1, 1, 200, dtype=torch.float64)[None, None]
    q = torch.tensor([1.0, 0.0], dtype=torch.float64)[None, None, None]
    k = logits[..., None] * q
    pos_q, pos_k = torch.tensor([[199]]), torch.arange(200)[None]
    v = logits.abs().gt(0.5)[..., None].to(q.dtype).expand(1, 1, 200, 2).contiguous()
    ctx = Context(q * 2**0.5, k, pos_q, pos_k)
    assert max(worst(ctx, v, ENCODINGS["nope"], False, 0.2)) <= 1
    monkeypatch.setattr(certificate, "exp_polynomial", narrow)
    assert max(worst(ctx, v, ENCODINGS["nope"], False, 0.2)) > 1


@pytest.mark.parametrize("causal", [True, False])
def test_hidden_keys_count_for_nothing(causal):
    ctx, v = context(3, scale=0.05)
    seen = torch.ones(1, 1, 1, 40, dtype=torch.bool)
    seen[..., 30:] = False
    wild = ctx.k.masked_fill(~seen.mT, 1e6)
    masked = dataclasses.replace(ctx, k=wild, mask=seen)
    made = plan(masked, ENCODINGS["nope"], causal=causal)
    calm = plan(dataclasses.replace(ctx, mask=seen), ENCODINGS["nope"], causal=causal)
    assert [h.reach_bound for h in made.heads] == [h.reach_bound for h in calm.heads]
    assert max(worst(masked, v, ENCODINGS["nope"], causal, 1e-2)) <= 1


@pytest.mark.parametrize("extreme", [math.inf, math.nan, 1e30, 1e4])
def test_logits_beyond_all_degrees_run_exact_and_say_so(extreme):
    ctx, v = context(0)
    ctx.k[0, 1, 7] = extreme
    made = plan(ctx, ENCODINGS["nope"], causal=True)
    assert made.heads[1].choice == "exact"
    assert "no degree up to 16" in made.heads[1].reason
    with pytest.raises(UnsupportedError, match=r"'polynomial' cannot serve head \d: no degree"):
        attention(ctx, v, ENCODINGS["nope"], causal=True, impl="polynomial")


def test_centring_undoes_what_softmax_ignores():
    ctx, _ = context(1, scale=0.05)
    far = dataclasses.replace(ctx, k=ctx.k + 1000)
    near, moved = (plan(c, ENCODINGS["nope"], causal=True) for c in (ctx, far))
    for a, b in zip(near.heads, moved.heads, strict=True):
        assert b.reach_bound == pytest.approx(a.reach_bound, rel=1e-3)


def test_every_bound_of_the_reach_holds_and_each_is_somewhere_the_best():
    draw = torch.Generator().manual_seed(0)
    scales = torch.tensor([[1.0, 1, 1, 1], [5, 1, 0.1, 0.1], [1, 1, 1, 1]])[None, :, None]
    q = torch.randn(2, 3, 50, 4, generator=draw, dtype=torch.float64) / scales
    k = torch.randn(2, 3, 50, 4, generator=draw, dtype=torch.float64) * scales
    k[:, 2] = k[:, 2].sign()
    q[:, 2] = torch.eye(4, dtype=torch.float64)[torch.arange(50) % 4]
    bounds = bound_logits(q, k)
    logits = (q @ (k - bounds.centre).mT).abs().amax((0, 2, 3))
    assert (logits <= bounds.reach_bound).all()
    assert (bounds.reach_bound <= bounds.norm_bound * (1 + 1e-9)).all()
    assert bounds.reach_bound[1] < bounds.norm_bound[1] / 3
    assert bounds.reach_bound[2] < bounds.norm_bound[2] / 1.5


def test_heads_in_a_subspace_get_its_features():
    draw = torch.Generator().manual_seed(0)
    inside = torch.linalg.qr(torch.randn(16, 16, generator=draw, dtype=torch.float64))[0][:, :3]
    k = torch.randn(1, 1, 60, 3, generator=draw, dtype=torch.float64) @ inside.mT
    q = 0.2 * torch.randn(1, 1, 60, 16, generator=draw, dtype=torch.float64)
    v = torch.randn(1, 1, 60, 16, generator=draw, dtype=torch.float64)
    pos = torch.arange(60)[None]
    for ctx in (Context(q, k, pos, pos), Context(5 * k, 0.2 * q, pos, pos)):
        setting = RoundingSetting(60, 16, torch.float64, torch.float64)
        found = fewest_features(bound_logits(ctx.q * ctx.scale, ctx.k), 0, 1e-2, setting)
        assert found is not None
        assert found.rank == 3
        assert max(worst(ctx, v, ENCODINGS["nope"], True, 1e-2)) <= 1


def test_gradients_follow_within_what_the_weights_are_off():
    ctx, v = context(2, scale=0.02, dtype=torch.float64)
    leaves = [x.requires_grad_() for x in (ctx.q, ctx.k, v)]
    grads = []
    for impl in ("polynomial", "reference"):
        out = attention(ctx, v, ENCODINGS["rope"], causal=True, impl=impl)
        grads.append(torch.autograd.grad((out * v.detach()).sum(), leaves))
    for ours, theirs in zip(*grads, strict=True):
        assert (ours - theirs).norm() < 0.1 * theirs.norm()


def test_the_plan_chooses_exact_where_that_is_faster_and_the_result_is_then_exact():
    ctx, v = context(0, scale=0.05)
    made = plan(ctx, ENCODINGS["nope"], causal=True)
    assert {h.choice for h in made.heads} == {"exact"}
    assert all("cost more than 40 keys" in h.reason for h in made.heads)
    assert all(h.speedup_estimate is not None and h.speedup_estimate < 1 for h in made.heads)
    assert made.error_bound == 0
    out = attention(ctx, v, ENCODINGS["nope"], causal=True, impl="auto")
    assert_close(out, attention(ctx, v, ENCODINGS["nope"], causal=True))


@pytest.mark.parametrize("kernel", ["polynomial", "fft"])
@pytest.mark.parametrize("name", ["rope", "alibi"])
@pytest.mark.parametrize("causal", [True, False])
def test_heads_of_one_layer_may_differ(name, causal, kernel):
    ctx, v = context(0, scale=0.01)
    ctx.q[:, 1] *= 1e4
    made = plan(ctx, ENCODINGS[name], causal=causal, kernels=(kernel,)).with_all_fast()
    assert [h.choice for h in made.heads] == [kernel, "exact", kernel]
    out = planned_attention(ctx, v, ENCODINGS[name], made)
    truth = attention(ctx, v, ENCODINGS[name], causal=causal)
    assert_close(out[:, 1], truth[:, 1])
    assert (out - truth).abs().max() <= made.error_bound * v.abs().max()


def test_what_cannot_be_fast_is_exact_and_says_why():
    ctx, v = context(0)
    shaw = Shaw(Shaw.Config().fitted(head_dim=DIM, n_heads=HEADS, max_length=40))
    pairs = dataclasses.replace(ctx, mask=torch.ones(40, 40, dtype=torch.bool).tril())
    for c, encoding, why in (
        (ctx, shaw, "Shaw is of form"),
        (pairs, ENCODINGS["nope"], "a mask of keys alone"),
    ):
        made = plan(c, encoding, causal=False)
        assert all(why in h.reason for h in made.heads)
        out = attention(c, v, encoding, causal=False, impl="auto")
        assert_close(out, attention(c, v, encoding, causal=False))
    assert "cannot compute form" in str(IMPLEMENTATIONS["polynomial"].objection(shaw, v.device, None))


def test_a_learned_lag_bias_is_refused_only_where_it_needs_a_gradient():
    ctx, _ = context(0, scale=0.01)
    learned = T5(T5.Config(n_heads=HEADS))
    blocked = plan(ctx, learned, causal=True, kernels=("polynomial",)).heads[0]
    assert "has no gradient" in blocked.reason
    assert blocked.certificate is None
    assert plan(ctx, learned, causal=True).heads[0].kernel == "fft"
    with torch.no_grad():
        assert plan(ctx, learned, causal=True).heads[0].certificate is not None


def test_lag_biases_that_vanish_at_all_visible_keys_are_refused():
    ctx, _ = context(0, n=400)
    seen = torch.ones(1, 1, 1, 400, dtype=torch.bool)
    reasons = [
        plan(dataclasses.replace(ctx, mask=m), ENCODINGS["alibi"], causal=True).heads[0].reason
        for m in (seen, None)
    ]
    assert "within 60 of its largest" in reasons[0]
    assert "within 60" not in reasons[1]


def test_of_an_empty_batch_all_heads_are_exact():
    x, pos = torch.zeros(0, HEADS, 5, DIM), torch.arange(5)[None]
    made = plan(Context(x, x, pos, pos), ENCODINGS["alibi"], causal=True)
    assert [h.reason for h in made.heads] == ["there are no queries to measure."] * HEADS


@pytest.mark.parametrize("tolerance", [0.0, 1.0, -1.0])
def test_tolerances_outside_the_unit_interval_are_refused(tolerance):
    with pytest.raises(ConfigError, match="tolerance must be between 0 and 1"):
        plan(context(0)[0], ENCODINGS["nope"], tolerance, causal=True)


def test_ranges_are_rounded_up_by_at_most_one_percent():
    for reach in (1e-7, 0.3, 0.5, 1.0, 11.9):
        assert reach * (1 - 1e-9) <= rounded_up(reach) <= reach * 1.0101
    assert rounded_up(0.0) > 0
    assert rounded_up(math.inf) == math.inf
