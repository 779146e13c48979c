"""Compiled attention against the explicit one, where it is built, and its refusals everywhere."""

import dataclasses
import importlib

import pytest
import torch
from tests.attention.test_attention import CPU, FACTORING, SIZES, inputs, outcome
from torch.testing import assert_close

import spectrope as sp
from spectrope.attention import IMPLEMENTATIONS, attention, fastest
from spectrope.attention.compiled import missing
from spectrope.attention.explicit import CACHED_ENTRIES
from spectrope.core.config import config_hash
from spectrope.core.errors import ConfigError, UnknownNameError, UnsupportedError
from spectrope.core.noise import Noise
from spectrope.encodings.base import ENCODINGS, Context, Encoding
from spectrope.lab.experiments import written
from spectrope.lab.runs import build_model
from spectrope.lab.training.loop import accumulate

built = pytest.mark.skipif(missing() is not None, reason=f"compiled attention {missing()}")
TOLERANCE = {"rtol": 1e-4, "atol": 1e-4}  # In float32, as docs/explanation/speed.md states it.


def build(name: str, **sizes: int) -> Encoding:
    return ENCODINGS.config(name)().fitted(**SIZES | sizes).build()


def narrow(ctx: Context, v: torch.Tensor, dtype: torch.dtype = torch.float32) -> tuple[Context, torch.Tensor]:
    """The same inputs in another precision."""
    fields = {name: getattr(ctx, name).detach().to(dtype) for name in ("q", "k", "x_q", "x_k")}
    fields |= {name: fields[name].requires_grad_() for name in ("q", "k")}
    return dataclasses.replace(ctx, **fields), v.detach().to(dtype).requires_grad_()


def compare(ctx, v, encoding, causal, dropout=None):
    noises = [dropout and Noise(dropout, 5, CPU) for _ in range(2)]
    expected = outcome(ctx, v, encoding, causal, "explicit", noises[0])
    found = outcome(ctx, v, encoding, causal, "compiled", noises[1])
    assert_close(found, expected, equal_nan=True, **TOLERANCE)


def drawn(n_q: int, n_k: int, width: int, of_values: int) -> tuple[Context, torch.Tensor]:
    generator = torch.Generator().manual_seed(width)
    q, k, v = (
        torch.randn(3, 4, n, d, generator=generator).requires_grad_()
        for n, d in ((n_q, width), (n_k, width), (n_k, of_values))
    )
    return Context(q, k, torch.arange(n_q)[None], torch.arange(n_k)[None]), v


@built
@pytest.mark.parametrize("dropout", [None, 0.3])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("name", FACTORING)
def test_equals_the_explicit_kernel_in_values_and_gradients(name, causal, dropout):
    compare(*narrow(*inputs(70, 70)), build(name), causal, dropout)


@built
@pytest.mark.parametrize("dropout", [None, 0.3])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("n_q", "n_k"), [(1, 1), (1, 7), (5, 111), (63, 63), (64, 64), (130, 130), (9, 4)])
@pytest.mark.parametrize(("width", "of_values"), [(2, 2), (6, 10), (16, 16), (64, 24)])
def test_any_length_and_width(width, of_values, n_q, n_k, causal, dropout):
    compare(*drawn(n_q, n_k, width, of_values), build("nope"), causal, dropout)


@built
@pytest.mark.parametrize("shape", [(1, 1, 1, 9), (3, 1, 1, 9), (1, 4, 9, 9), (3, 4, 9, 9), (9, 9)])
@pytest.mark.parametrize("name", ["nope", "t5", "cope"])
def test_any_mask(name, shape):
    ctx, v = narrow(*inputs(9, 9, batch=3))
    mask = torch.rand(shape, generator=torch.Generator().manual_seed(2)) < 0.7
    mask[..., 0] = True
    for causal in (True, False):
        compare(dataclasses.replace(ctx, mask=mask), v, build(name), causal, 0.3)


@built
@pytest.mark.parametrize("causal", [True, False])
def test_a_query_that_sees_no_key_has_no_output(causal):
    ctx, v = narrow(*inputs(9, 9))
    blind = dataclasses.replace(ctx, mask=torch.arange(9)[:, None].expand(9, 9) != 4)
    found, expected = (
        attention(blind, v, build("nope"), causal=causal, impl=impl) for impl in ("compiled", "explicit")
    )
    assert found.isnan().all(-1).sum() == found.isnan().any(-1).sum() == 2 * 4
    assert_close(found, expected, equal_nan=True, **TOLERANCE)


@built
@pytest.mark.parametrize("name", ["nope", "t5", "kerple_log"])
def test_pieces_draw_the_same_masks(name, monkeypatch):
    monkeypatch.setitem(CACHED_ENTRIES, "cpu", 2 * 4 * 9 * 9)
    compare(*narrow(*inputs(9, 9, batch=5)), build(name), True, 0.3)


@built
@pytest.mark.parametrize("n", [1, 17, 32, 100])
@pytest.mark.parametrize("dropout", [None, 0.3])
@pytest.mark.parametrize("name", ["nope", "rope", "t5"])
def test_in_bfloat16_it_errs_no_more_than_the_explicit_kernel(name, dropout, n):
    encoding, (ctx, v) = build(name).double(), inputs(n, n, batch=4)

    def computed(impl: str, dtype: torch.dtype) -> torch.Tensor:
        noise = dropout and Noise(dropout, 5, CPU)
        out, grads = outcome(*narrow(ctx, v, dtype), encoding.to(dtype), True, impl, noise)
        assert out.dtype is dtype
        return torch.cat([x.detach().double().flatten() for x in (out, *grads) if x is not None])

    exact = computed("reference", torch.float64)
    errors = [(computed(impl, torch.bfloat16) - exact).norm() for impl in ("compiled", "explicit")]
    assert errors[0] <= 1.1 * errors[1] + 1e-6


@built
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rounding_is_that_of_torch(dtype):
    ctx, v = narrow(*inputs(1, 1), dtype)
    values = torch.tensor([1 + 2**-8, 1 + 3 * 2**-8, -3.4e38, 1e-40, torch.inf, -torch.inf, torch.nan, 0.1])
    with torch.no_grad():  # One key gets all attention, so that values pass unchanged.
        out = attention(ctx, v.copy_(values), build("nope"), causal=True, impl="compiled")
    assert_close(out, v.detach(), rtol=0, atol=0, equal_nan=True)


@built
def test_without_gradients_outputs_are_the_same():
    (ctx, v), encoding = narrow(*inputs(33, 33)), build("alibi")
    expected = attention(ctx, v, encoding, causal=True, impl="compiled")
    with torch.no_grad():
        out = attention(ctx, v, encoding, causal=True, impl="compiled")
    assert torch.equal(out, expected)
    assert expected.requires_grad
    assert not out.requires_grad


@built
def test_threads_change_nothing():
    (ctx, v), encoding = narrow(*inputs(40, 40, batch=7)), build("t5")
    before = torch.get_num_threads()
    try:
        found = []
        for threads in (1, 3):
            torch.set_num_threads(threads)
            found.append(outcome(ctx, v, encoding, True, "compiled", Noise(0.3, 5, CPU)))
    finally:
        torch.set_num_threads(before)
    assert_close(found[0], found[1], rtol=0, atol=0)


@built
def test_inputs_may_have_any_layout_in_memory():
    encoding, generator = build("nope"), torch.Generator().manual_seed(0)
    flat = torch.randn(2, 9, 3, 4, 8, generator=generator)  # (b, t, qkv, h, d), as a linear layer writes it
    q, k, v = flat.permute(2, 0, 3, 1, 4)
    turned = v.mT.contiguous().mT
    pos = torch.arange(9)[None]
    expected = attention(Context(q, k, pos, pos), v, encoding, causal=True)
    for values in (v, turned):
        out = attention(Context(q, k, pos, pos), values, encoding, causal=True, impl="compiled")
        assert_close(out, expected, **TOLERANCE)


@built
@pytest.mark.parametrize(("batch", "n_q", "n_k"), [(0, 5, 5), (2, 0, 5)])
def test_of_nothing_nothing_is_computed(batch, n_q, n_k):
    ctx, v = narrow(*inputs(n_q, n_k, batch=batch))
    out = attention(ctx, v, build("nope"), causal=True, impl="compiled")
    assert out.shape == (batch, 4, n_q, 8)
    leaves = (ctx.q, ctx.k, v)
    grads = torch.autograd.grad(out.sum(), leaves)
    assert all(not g.any() and g.shape == x.shape for g, x in zip(grads, leaves, strict=True))


@built
@pytest.mark.parametrize("encoding", ["rope", "t5"])
def test_a_model_trains_by_it_as_by_the_explicit_kernel(encoding):
    one = sp.experiment("distance", encoding, n_examples=60)
    data = one.task.build().sample(24, seed=0)
    losses, grads = [], []
    for chosen in (one, one.with_(impl="compiled")):
        model = build_model(chosen, CPU)
        losses.append(accumulate(model, data, Noise(0.1, 0, CPU), 16, torch.float32))
        grads.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]))
    assert model.impl == "compiled"
    assert_close(losses[1], losses[0])
    assert_close(grads[1], grads[0], **TOLERANCE)


def test_it_is_part_of_what_was_asked_and_of_nothing_else():
    one = sp.experiment("distance", "rope")
    chosen = one.with_(impl="compiled")
    assert "impl" not in written(one)["training"]
    assert written(chosen)["training"]["impl"] == "compiled"
    assert config_hash(written(chosen)) != config_hash(written(one))
    for dtype in (torch.float32, torch.bfloat16):
        assert fastest(build("rope"), CPU, None, dtype) == "explicit"


def test_training_takes_exact_implementations_alone():
    one = sp.experiment("distance", "rope")
    with pytest.raises(ConfigError, match=r"TrainingConfig\.impl must be an exact implementation"):
        one.with_(impl="polynomial")
    with pytest.raises(UnknownNameError, match="did you mean compiled"):
        one.with_(impl="compield")


def refusal(ctx: Context, v: torch.Tensor, encoding: Encoding) -> str:
    with pytest.raises(UnsupportedError) as refused:
        attention(ctx, v, encoding, causal=True, impl="compiled")
    return str(refused.value)


def test_other_precisions_devices_and_forms_are_refused_by_name():
    ctx, v = inputs(2, 2)
    assert "'compiled' has no kernel for float64; available here for NoPE: " in refusal(ctx, v, build("nope"))
    objection = IMPLEMENTATIONS["compiled"].objection
    assert objection(build("nope"), CPU, None, torch.float16) == "has no kernel for float16"
    assert objection(build("nope"), torch.device("cuda"), None) == "has no kernel for cuda"
    assert objection(build("path"), CPU, None) == "cannot compute form GENERAL"


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ModuleNotFoundError("No module"), r"'compiled' needs the package spectrope-kernels \(pip install"),
        (ImportError("no code for NEON"), "'compiled' cannot load the package spectrope-kernels: no code"),
        (OSError("undefined symbol\nat 0"), "spectrope-kernels: undefined symbol; available here for"),
    ],
)
def test_where_it_cannot_be_imported_it_says_so(error, message, monkeypatch):
    real = importlib.import_module

    def without(name: str):
        if name == "spectrope_kernels":
            raise error
        return real(name)

    monkeypatch.setattr(importlib, "import_module", without)
    missing.cache_clear()
    try:
        with pytest.raises(UnsupportedError, match=message):
            attention(*narrow(*inputs(2, 2)), build("nope"), causal=True, impl="compiled")
    finally:
        missing.cache_clear()
