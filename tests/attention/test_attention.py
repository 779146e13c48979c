"""Every implementation against the reference: values and gradients, at awkward lengths."""

import dataclasses

import pytest
import torch
from torch.testing import assert_close

from spectrope.attention import IMPLEMENTATIONS, attention, fastest
from spectrope.attention.explicit import CACHED_ENTRIES, _block, explicit, pieces
from spectrope.core.errors import ConfigError, UnknownNameError, UnsupportedError
from spectrope.core.noise import Noise
from spectrope.encodings.base import ENCODINGS, Context, Encoding, Form

CPU = torch.device("cpu")
SIZES = {"d_model": 24, "n_heads": 4, "head_dim": 8, "max_length": 160, "causal": True}
COMPUTING = [name for name in IMPLEMENTATIONS if name != "compiled"]  # It has no float64; see test_compiled.
FAST = [name for name in COMPUTING if name != "reference" and IMPLEMENTATIONS[name].exact]


def build(name: str) -> Encoding:
    return ENCODINGS.config(name)().fitted(**SIZES).build().double()


FACTORING = [name for name in ENCODINGS if build(name).form is not Form.GENERAL]


def inputs(n_q: int, n_k: int, batch: int = 2) -> tuple[Context, torch.Tensor]:
    generator = torch.Generator().manual_seed(n_q)
    h, d = SIZES["n_heads"], SIZES["head_dim"]

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_()

    q, k, v = draw(batch, h, n_q, d), draw(batch, h, n_k, d), draw(batch, h, n_k, d)
    x_q, x_k = draw(batch, n_q, SIZES["d_model"]), draw(batch, n_k, SIZES["d_model"])
    q_pos, k_pos = torch.arange(n_k - n_q, n_k)[None], torch.arange(n_k)[None]
    return Context(q, k, q_pos, k_pos, x_q, x_k), v


def outcome(ctx: Context, v: torch.Tensor, encoding: Encoding, causal: bool, impl: str, noise=None):
    out = attention(ctx, v, encoding, causal=causal, impl=impl, noise=noise)
    leaves = [ctx.q, ctx.k, v, *(p for p in encoding.parameters() if p.requires_grad)]
    weights = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out)
    grads = torch.autograd.grad((out * weights).sum(), leaves, allow_unused=True)
    return out, grads


ABLE = [(n, i) for n in FACTORING for i in FAST if IMPLEMENTATIONS[i].objection(build(n), CPU, None) is None]


@pytest.mark.sampled
@pytest.mark.parametrize(("name", "impl"), ABLE)
@pytest.mark.parametrize("causal", [True, False])
def test_equals_the_reference_in_values_and_gradients(name, causal, impl, monkeypatch):
    monkeypatch.setattr("spectrope.attention.explicit.LEAST_ROWS", 16)
    encoding, (ctx, v) = build(name), inputs(63, 63)
    expected, expected_grads = outcome(ctx, v, encoding, causal, "reference")
    out, grads = outcome(ctx, v, encoding, causal, impl)
    assert_close(out, expected)
    for grad, wanted in zip(grads, expected_grads, strict=True):
        assert (grad is None) == (wanted is None)
        if wanted is not None:
            assert_close(grad, wanted)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("name", ["nope", "t5", "kerple_log", "cope", "tupe"])
def test_pieces_of_a_batch_make_the_whole(name, shared, monkeypatch):
    encoding, (ctx, v) = build(name), inputs(8, 9, batch=5)
    if not shared:  # Positions of each example's own, hence biases too.
        ahead = torch.arange(5)[:, None]
        ctx = dataclasses.replace(ctx, q_pos=ctx.q_pos + ahead, k_pos=2 * ctx.k_pos + ahead)
    monkeypatch.setitem(CACHED_ENTRIES, "cpu", 2 * 4 * 8 * 9 + 1)
    pattern = torch.empty(5, 4, 8, 9)
    assert [len(pattern[piece]) for piece in pieces(pattern)] == [2, 2, 1]
    for dropout in ([None, None], [Noise(0.3, 5, CPU) for _ in range(2)]):
        expected = outcome(ctx, v, encoding, False, "reference", dropout[0])
        assert_close(outcome(ctx, v, encoding, False, "explicit", dropout[1]), expected)


@pytest.mark.parametrize("n", [1, 17, 32])
@pytest.mark.parametrize("dropout", [None, 0.3])
@pytest.mark.parametrize("name", ["nope", "rope", "t5"])
def test_in_bfloat16_the_explicit_kernel_errs_about_as_much_as_the_reference(name, dropout, n):
    encoding, (ctx, v) = build(name), inputs(n, n, batch=4)

    def computed(impl: str, dtype: torch.dtype) -> torch.Tensor:
        low = dataclasses.replace(ctx, q=ctx.q.to(dtype), k=ctx.k.to(dtype))
        noise = dropout and Noise(dropout, 5, CPU)
        out, grads = outcome(low, v.to(dtype), encoding.to(dtype), True, impl, noise)
        return torch.cat([x.detach().double().flatten() for x in (out, *grads) if x is not None])

    exact = computed("reference", torch.float64)
    errors = [(computed(impl, torch.bfloat16) - exact).norm() for impl in ("explicit", "reference")]
    assert errors[0] <= 1.6 * errors[1] + 1e-6
    assert errors[0] <= 0.02 * exact.norm()


def test_gradients_of_a_bias_add_up_in_float32(monkeypatch):
    encoding, (ctx, v) = build("kerple_log").bfloat16(), inputs(9, 9, batch=64)
    low = dataclasses.replace(ctx, q=ctx.q.bfloat16(), k=ctx.k.bfloat16())

    def gradient() -> torch.Tensor:
        explicit(low, v.bfloat16(), encoding, False, None).square().sum().backward()
        found = torch.cat([p.grad.flatten() for p in encoding.parameters()])
        encoding.zero_grad()
        return found.double()

    whole = gradient()
    monkeypatch.setitem(CACHED_ENTRIES, "cpu", 1)
    assert_close(gradient(), whole, rtol=0.01, atol=0)


@pytest.mark.parametrize("impl", FAST)
@pytest.mark.parametrize(("n_q", "n_k"), [(1, 1), (1, 7), (5, 111)])
def test_queries_at_the_end_of_longer_keys(impl, n_q, n_k):
    encoding, (ctx, v) = build("nope"), inputs(n_q, n_k)
    assert_close(
        attention(ctx, v, encoding, causal=True, impl=impl),
        attention(ctx, v, encoding, causal=True, impl="reference"),
    )


@pytest.mark.parametrize("impl", ["reference", *FAST])
def test_masked_keys_are_never_read(impl):
    encoding, (ctx, v) = build("nope"), inputs(9, 9)
    real = torch.arange(9) < 6
    masked = Context(ctx.q, ctx.k, ctx.q_pos, ctx.k_pos, mask=real[None, None, None, :])
    changed = torch.where(real[:, None], v, 1e6)
    same = [attention(masked, values, encoding, causal=False, impl=impl) for values in (v, changed)]
    assert_close(same[0], same[1])


def test_dropout_of_the_explicit_kernel_is_that_of_the_reference(monkeypatch):
    monkeypatch.setattr("spectrope.attention.explicit.LEAST_ROWS", 8)  # Without dropout there were blocks.
    encoding, (ctx, v) = build("nope"), inputs(31, 31)
    pairs = [outcome(ctx, v, encoding, True, impl, Noise(0.3, 5, CPU)) for impl in ("reference", "explicit")]
    assert_close(pairs[0], pairs[1])


def test_an_unknown_implementation_suggests_the_nearest():
    ctx, v = inputs(2, 2)
    with pytest.raises(UnknownNameError, match="did you mean explicit"):
        attention(ctx, v, build("nope"), causal=True, impl="explict")


class General(Encoding):
    form = Form.GENERAL


def test_what_cannot_be_computed_is_refused_by_name():
    ctx, v = inputs(2, 2)
    general = General(ENCODINGS.config("nope")())
    with pytest.raises(UnsupportedError, match=r"'explicit' cannot compute form GENERAL.*parts, reference"):
        attention(ctx, v, general, causal=True, impl="explicit")
    with pytest.raises(UnsupportedError, match="'fused' has no dropout"):
        attention(ctx, v, build("nope"), causal=True, impl="fused", noise=Noise(0.1, 0, CPU))
    with pytest.raises(UnsupportedError, match="'fused' has no gradient for a bias that needs one"):
        attention(ctx, v, build("t5"), causal=True, impl="fused")
    assert fastest(general, CPU) == "reference"
    assert fastest(build("nope"), CPU) == "explicit"
    assert fastest(build("nope"), torch.device("cuda")) == "fused"


def test_on_cuda_float64_takes_another_kernel():
    cuda, wide = torch.device("cuda"), torch.float64
    assert fastest(build("nope"), cuda, dtype=wide) == "explicit"
    assert fastest(build("nope"), cuda, dtype=torch.bfloat16) == "fused"
    objection = IMPLEMENTATIONS["fused"].objection(build("nope"), cuda, None, wide)
    assert objection == "has no kernel for float64 on CUDA"
    assert IMPLEMENTATIONS["fused"].objection(build("nope"), CPU, None, wide) is None


@pytest.mark.parametrize(("width", "of_values"), [(6, 6), (12, 12), (8, 8), (8, 10)])
def test_fused_kernels_get_widths_that_are_multiples_of_8(width, of_values, monkeypatch):
    widths, own = [], torch.nn.functional.scaled_dot_product_attention

    def watched(*states, **options):
        widths.extend(x.shape[-1] for x in states)
        return own(*states, **options)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", watched)
    q, k, v = torch.randn(2, 4, 5, width), torch.randn(2, 4, 5, width), torch.randn(2, 4, 5, of_values)
    pos, alibi = torch.arange(5)[None], build("alibi")
    out = attention(Context(q, k, pos, pos), v, alibi, causal=True, impl="fused")
    assert set(widths) == {8 if width == of_values == 8 or width == 6 else 16}
    assert_close(out, attention(Context(q, k, pos, pos), v, alibi, causal=True))


def test_fastest_is_resolved_where_attention_is_asked_for(monkeypatch):
    ctx, v = inputs(5, 5)
    taken = []
    own = IMPLEMENTATIONS["explicit"]
    watched = dataclasses.replace(own, compute=lambda *given: taken.append(1) or own.compute(*given))
    monkeypatch.setitem(IMPLEMENTATIONS._members, "explicit", watched)
    out = attention(ctx, v, build("alibi"), causal=True, impl="fastest")
    assert taken == [1]
    assert_close(out, attention(ctx, v, build("alibi"), causal=True))


@pytest.mark.parametrize("impl", COMPUTING)
@pytest.mark.parametrize("encoding", ["rope", "alibi"])
def test_of_an_empty_batch_nothing_is_computed(impl, encoding):
    ctx, v = inputs(5, 5, batch=0)
    out = attention(ctx, v, build(encoding), causal=True, impl=impl)
    assert out.shape == v.shape
    leaves = (ctx.q, ctx.k, v)
    assert [g.shape for g in torch.autograd.grad(out.sum(), leaves)] == [x.shape for x in leaves]


@pytest.mark.sampled
@pytest.mark.parametrize(("n_q", "n_k"), [(16, 16), (33, 33), (70, 70), (5, 18)])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("name", FACTORING)
def test_without_gradients_the_explicit_kernel_gives_the_same_outputs(name, causal, n_q, n_k, monkeypatch):
    monkeypatch.setattr("spectrope.attention.explicit.LEAST_ROWS", 16)
    monkeypatch.setitem(CACHED_ENTRIES, "cpu", 2 * 4 * n_q * 48)
    encoding, (ctx, v) = build(name), inputs(n_q, n_k, batch=5)
    expected = attention(ctx, v, encoding, causal=causal, impl="explicit")
    with torch.no_grad():
        out = attention(ctx, v, encoding, causal=causal, impl="explicit")
    assert expected.requires_grad
    assert not out.requires_grad
    assert_close(out, expected)


@pytest.mark.parametrize("n_k", [48, 45])
@pytest.mark.parametrize("name", ["nope", "t5", "cope"])
def test_without_gradients_patterns_beyond_the_cache_come_in_blocks_of_queries(name, n_k, monkeypatch):
    monkeypatch.setattr("spectrope.attention.explicit.LEAST_ROWS", 16)
    monkeypatch.setitem(CACHED_ENTRIES, "cpu", 1)
    sizes = []

    def watched(q, *others):
        sizes.append(q.shape[2])
        return _block(q, *others)

    monkeypatch.setattr("spectrope.attention.explicit._block", watched)
    encoding, (ctx, v) = build(name), inputs(40, n_k, batch=2)
    expected = attention(ctx, v, encoding, causal=False, impl="reference")
    with torch.no_grad():
        assert_close(attention(ctx, v, encoding, causal=False, impl="explicit"), expected)
    assert sizes == [16, 16, 8]


@pytest.mark.parametrize("n", [1, 17, 32])
@pytest.mark.parametrize("name", ["nope", "rope", "alibi"])
def test_without_gradients_bfloat16_errs_as_little(name, n):
    encoding, (ctx, v) = build(name).float(), inputs(n, n, batch=4)

    def computed(dtype: torch.dtype) -> torch.Tensor:
        low = dataclasses.replace(ctx, q=ctx.q.detach().to(dtype), k=ctx.k.detach().to(dtype))
        out = attention(low, v.detach().to(dtype), encoding, causal=True, impl="explicit")
        assert out.dtype is dtype
        return out.float()

    exact = computed(torch.float32)
    assert (computed(torch.bfloat16) - exact).norm() <= 0.01 * exact.norm()


@pytest.mark.parametrize("impl", ["reference", "explicit", "fused"])
@pytest.mark.parametrize("of_keys", [1, 2])
def test_grouped_keys_are_to_be_repeated(impl, of_keys):
    q, k = torch.randn(2, 4, 5, 8), torch.randn(2, of_keys, 5, 8)
    pos = torch.arange(5)[None]
    with pytest.raises(ConfigError, match=r"number of heads of the queries, 4; got .\. Use torch's repeat"):
        attention(Context(q, k, pos, pos), k, ENCODINGS["nope"](), causal=True, impl=impl)


@pytest.mark.parametrize("impl", ["reference", "explicit", "fused"])
@pytest.mark.parametrize("shape", [(), (5, 1), (4, 1, 1), (2, 1, 5, 1), (5,), (2, 1, 1, 5)])
def test_any_mask_that_broadcasts_is_taken(shape, impl):
    q, pos = torch.randn(2, 4, 5, 8), torch.arange(5)[None]
    ctx = Context(q, q, pos, pos, mask=torch.ones(shape, dtype=torch.bool))
    free = attention(dataclasses.replace(ctx, mask=None), q, ENCODINGS["nope"](), causal=False)
    assert_close(attention(ctx, q, ENCODINGS["nope"](), causal=False, impl=impl), free)


@pytest.mark.parametrize("shape", [(3, 5), (2, 4, 5, 4), (1, 2, 4, 5, 5)])
def test_a_mask_that_does_not_fit_is_refused(shape):
    q, pos = torch.randn(2, 4, 5, 8), torch.arange(5)[None]
    ctx = Context(q, q, pos, pos, mask=torch.ones(shape, dtype=torch.bool))
    with pytest.raises(ConfigError, match=r"mask must broadcast to \(b, h, i, j\), \(2, 4, 5, 5\); got"):
        attention(ctx, q, ENCODINGS["nope"](), causal=False)
