"""The cost model: counts of operations against torch's own, choices that depend on shapes alone, files."""

import json
import math
import time
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode, bmm_flop, sdpa_flop_count

from spectrope.core.config import to_dict
from spectrope.core.errors import ConfigError
from spectrope.encodings.alibi import ALiBi
from spectrope.encodings.base import Context
from spectrope.encodings.rope import RoPE
from spectrope.encodings.t5 import T5
from spectrope.fast import calibration, forecast, plan
from spectrope.fast.calibration import Case, cases, fit, rounds
from spectrope.fast.chunkwise import PolynomialWeights, chunk_length
from spectrope.fast.costs import (
    DEFAULT,
    CostModel,
    Shape,
    exact_operations,
    polynomial_operations,
    read_costs,
)
from spectrope.fast.lag_weights import lag_weights
from spectrope.fast.monomials import feature_count
from spectrope.fast.polynomial import polynomial_attention

CPU = torch.device("cpu")
SLOW_CALLS = CostModel(flop=1e-3, byte=1e-3, exponential=0.0, call=1e9, source="made up")


def context(n: int, dim: int = 16, scale: float = 0.05, dtype=torch.float32, batch: int = 1) -> Context:
    draw = torch.Generator().manual_seed(n)
    q, k = (scale * torch.randn(batch, 2, n, dim, generator=draw, dtype=dtype) for _ in range(2))
    pos = torch.arange(n)[None]
    return Context(q, k, pos, pos)


# Kernels that torch's counter leaves out, with its own formulas.
FORMULAS = {
    torch.ops.aten.baddbmm_: lambda out, a, b, **_: bmm_flop(a, b),
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: lambda q, k, v, *_, **__: sdpa_flop_count(
        q, k, v
    ),
}


def counted_flops(call) -> int:
    with FlopCounterMode(display=False, custom_mapping=FORMULAS) as counter:
        call()
    return counter.get_total_flops()


@pytest.mark.parametrize(("batch", "n", "dim"), [(1, 100, 16), (3, 64, 8)])
def test_flops_of_the_exact_kernel_are_those_that_torch_counts(batch, n, dim):
    q = torch.zeros(batch, 1, n, dim)
    counts = exact_operations(Shape(batch, n, n, dim, causal=False))
    assert counts.flops == counted_flops(lambda: F.scaled_dot_product_attention(q, q, q))
    assert counts.exponentials == batch * n * n


@pytest.mark.sampled
@pytest.mark.parametrize("encoding", ["rope", "alibi", "t5"])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("rank", "degree"), [(4, 2), (8, 3), (16, 1), (16, 2)])
@pytest.mark.parametrize("batch", [1, 40])
def test_flops_of_polynomial_attention_are_those_that_torch_counts(batch, rank, degree, causal, encoding):
    n, dim = 3 * 384, 16
    q, k = torch.zeros(2, batch, 1, n, rank)
    ctx, lags = Context(q, k, torch.arange(n)[None], torch.arange(n)[None]), None
    if encoding != "rope":
        bias = ALiBi(ALiBi.Config(n_heads=1)) if encoding == "alibi" else T5(T5.Config(n_heads=1))
        lags = lag_weights(ctx, bias.requires_grad_(False), causal)
    weights = PolynomialWeights((1.0,) * (degree + 1), causal, lags)
    counted = counted_flops(lambda: polynomial_attention(q, k, torch.zeros(batch, 1, n, dim), weights))
    shape = Shape(batch, n, n, dim, causal, lags is not None, starts=(0, 0) if lags is None else lags.starts)
    assert polynomial_operations(shape, rank, degree).flops == counted


class Calls(TorchDispatchMode):
    """Counts calls of torch's operations."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += 1
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("rank", "degree"), [(4, 2), (8, 3), (16, 1), (16, 2), (64, 2)])
@pytest.mark.parametrize("chunks", [2, 7])
def test_calls_of_polynomial_attention_are_those_that_torch_dispatches(chunks, rank, degree, causal):
    n = chunks * chunk_length(feature_count(rank, degree))
    q, k = torch.zeros(2, 1, 1, n, rank)
    weights = PolynomialWeights((1.0,) * (degree + 1), causal)
    polynomial_attention(q, k, k, weights)  # what is computed once for each rank and degree
    with Calls() as seen, torch.no_grad():
        polynomial_attention(q, k, k, weights)
    calls = polynomial_operations(Shape(1, n, n, rank, causal), rank, degree).calls
    assert calls == pytest.approx(seen.count, rel=0.03)


def test_precision_and_batch_multiply_the_counts():
    shape = Shape(1, 1000, 1000, 16, causal=True)
    one, double = (polynomial_operations(replace(shape, itemsize=size), 16, 2) for size in (4, 8))
    assert double.flops == 2 * one.flops
    assert double.bytes == 2 * one.bytes
    many = polynomial_operations(replace(shape, batch=10), 16, 2)
    assert many.flops == 10 * one.flops
    assert one.calls <= many.calls < 10 * one.calls  # Rows of a batch share the calls of a chunk.


def test_the_total_is_the_sum_over_operations():
    shape = Shape(2, 300, 300, 8, causal=False, biased=True)
    assert DEFAULT.exact(shape) == pytest.approx(
        sum(
            getattr(DEFAULT, name) * count
            for name, count in zip(
                ("flop", "byte", "exponential", "call", "transform"), exact_operations(shape), strict=True
            )
        )
    )


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("biased", [True, False])
def test_longer_sequences_gain_more(causal, biased):
    shapes = [Shape(1, n, n, 16, causal, biased) for n in (1024, 4096, 16_384, 65_536)]
    gains = [DEFAULT.exact(shape) / DEFAULT.polynomial(shape, 16, 2) for shape in shapes]
    assert all(later > 2 * earlier for earlier, later in pairwise(gains))
    assert gains[-1] > 8


def test_a_plan_measures_no_time(monkeypatch):
    def refuse() -> float:
        raise AssertionError("a plan looked at the clock")

    for clock in ("perf_counter", "monotonic", "time", "thread_time", "process_time"):
        monkeypatch.setattr(time, clock, refuse)
    rope = RoPE(RoPE.Config(head_dim=16))
    first, again = (plan(context(600), rope, causal=True) for _ in range(2))
    assert first.heads == again.heads


def test_other_costs_change_the_choice_and_are_named_in_the_plan():
    rope = RoPE(RoPE.Config(head_dim=16))
    usual = forecast(context(64), rope, 65_536, causal=True)
    assert {head.choice for head in usual} == {"polynomial"}
    dear = forecast(context(64), rope, 65_536, causal=True, costs=SLOW_CALLS)
    assert {head.choice for head in dear} == {"exact"}
    assert "cost more than 65536 keys" in dear[0].reason
    assert plan(context(64), rope, causal=True).costs is DEFAULT
    assert plan(context(64), rope, causal=True, costs=SLOW_CALLS).costs is SLOW_CALLS


def test_costs_are_read_as_they_were_written(tmp_path):
    path = tmp_path / "costs.json"
    path.write_text(json.dumps(to_dict(SLOW_CALLS)))
    assert read_costs(path) == SLOW_CALLS


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("not json", "holds no costs that can be read"),
        ("[1]", "holds no costs, but list"),
        ('{"flop": 1}', "CostModel.byte: Field required"),
        (
            '{"flop": 0, "byte": 1, "exponential": 1, "call": 1, "source": "x"}',
            "flop must be positive and finite",
        ),
        (
            '{"flop": 1, "byte": -1, "exponential": 1, "call": 1, "source": "x"}',
            "byte must be finite and not neg",
        ),
        (
            '{"flop": 1, "byte": 1, "exponential": 1, "call": 1, "source": "x", "x": 1}',
            "CostModel has no field 'x'",
        ),
    ],
)
def test_files_that_hold_no_costs_are_refused(tmp_path, text, message):
    path = tmp_path / "costs.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_costs(path)
    with pytest.raises(ConfigError, match="holds no costs that can be read"):
        read_costs(tmp_path / "missing.json")


def test_the_fit_recovers_the_constants_of_exact_times():
    measured = cases(CPU)
    found = fit(measured, [SLOW_CALLS.of(case.operations) for case in measured])
    for name in ("flop", "byte", "exponential", "call", "transform"):
        assert getattr(found, name) == pytest.approx(getattr(SLOW_CALLS, name), rel=1e-6, abs=1e-9)
    assert found.source.startswith("measured on ")


def test_rounds_keep_the_least_times(monkeypatch):
    monkeypatch.setattr(calibration, "ROUNDS", 3)
    few = [Case(Shape(1, 64, 64, 8, True)), Case(Shape(1, 64, 64, 8, False), 8, 2)]
    times = list(rounds(few, CPU))
    assert len(times) == 3
    assert all(
        0 < later <= earlier < math.inf
        for a, b in pairwise(times)
        for earlier, later in zip(a, b, strict=True)
    )


def test_an_fft_is_costed_by_the_terms_of_the_polynomial():
    torch.manual_seed(0)
    q, k = 0.2 * torch.randn(2, 1, 1, 4096, 16)
    at = torch.arange(4096)[None]
    planned = plan(Context(q, k, at, at), RoPE(head_dim=16), tolerance=1e-2, causal=False, kernels=("fft",))
    (head,) = planned.heads
    degree = head.certificate.polynomial.degree
    assert head.features == math.comb(16 + degree, degree) < head.certificate.features
    shape = Shape(1, 4096, 4096, 16, False, False, 4)
    assert head.polynomial_cost_estimate == planned.costs.fft(shape, head.features)
