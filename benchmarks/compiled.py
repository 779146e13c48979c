"""Training steps and evaluations by compiled attention, against the explicit implementation in Python.

RoPE on `distance` at two scales, and the paper's model on sequences of full length, on one thread and in
processor time. It needs the optional package: `make kernels`.
"""

import time
from collections.abc import Iterator
from dataclasses import replace

import torch
import torch.nn.functional as F
from benchmarks.harness import Case, run
from benchmarks.training import PAPER, examples, gradient
from torch.testing import assert_close

from spectrope.attention.compiled import missing
from spectrope.core.device import choose_dtype
from spectrope.core.memory import keep_freed_memory
from spectrope.core.noise import Noise
from spectrope.lab.evaluation.score import predict
from spectrope.lab.runs import build_model
from spectrope.lab.training.loop import accumulate, make_optimiser
from spectrope.lab.training.scales import experiment
from spectrope.models.decoder import Decoder
from spectrope.tasks.base import Batch

CPU = torch.device("cpu")
DTYPES = dict.fromkeys((choose_dtype("auto", CPU), torch.float32))
EVALUATED = {"mini": 2000, "mid": 512}
SEQUENCES, MICRO_BATCH = 64, 32
IMPLS = ("compiled", "explicit")


def gradient_gate(models: list[Decoder], data: Batch) -> None:
    """In float32 equal to 1e-4; in bfloat16 its loss within 2 % and the cosine at least .99."""
    loss, grad = gradient(models[1], data, torch.float32)
    assert_close(gradient(models[0], data, torch.float32), (loss, grad), rtol=1e-4, atol=1e-4)
    low, low_grad = gradient(models[0], data, torch.bfloat16)
    assert_close(low, loss, rtol=0.02, atol=0)
    assert F.cosine_similarity(low_grad, grad, dim=0) >= 0.99


def step_case(scale: str, dtype: torch.dtype) -> Case:
    """One step of the optimiser on the batch of the scale."""
    one = experiment("distance", "rope", scale=scale)
    data = one.task.build().sample(one.training.batch_size, seed=1)
    models = [build_model(one.with_(impl=impl), CPU) for impl in IMPLS]

    def stepper(model: Decoder):
        optimiser = make_optimiser(model, one.training)

        def step() -> None:
            optimiser.zero_grad(set_to_none=True)
            accumulate(model, data, Noise(one.model.dropout, 1, CPU), one.training.micro_batch, dtype)
            optimiser.step()

        return step

    goal = ">= 1.8x" if scale == "mini" else ""
    label = f"step, {scale}, {_name(dtype)}"
    ours, theirs = map(stepper, models)
    return Case(label, lambda: gradient_gate(models, data[:16]), ours, theirs, goal, clock=time.process_time)


def paper_case(dropout: float, dtype: torch.dtype) -> Case:
    """Gradients of the paper's model."""
    config, data = replace(PAPER, dropout=dropout), examples(SEQUENCES)
    models = [Decoder(config, impl) for impl in IMPLS]

    def differentiate(model: Decoder) -> None:
        model.zero_grad(set_to_none=True)
        accumulate(model, data, Noise(dropout, 1, CPU) if dropout else None, MICRO_BATCH, dtype)

    return Case(
        f"paper, dropout {dropout}, {_name(dtype)}",
        lambda: gradient_gate(models, data[:4]),
        lambda: differentiate(models[0]),
        lambda: differentiate(models[1]),
        ">= 1.5x" if dropout else "",
        clock=time.process_time,
    )


def evaluation_case(label: str, models: list[Decoder], data: Batch, dtype: torch.dtype) -> Case:
    """Class logits of held-out examples."""

    def gate() -> None:
        ours, exact = (predict(model, data[:32]) for model in models)
        assert_close(ours, exact, rtol=1e-4, atol=1e-4)
        low = predict(models[0], data[:32], dtype=torch.bfloat16)
        assert F.cosine_similarity(low.flatten(), exact.flatten(), dim=0) >= 0.99

    return Case(
        f"evaluation, {label}, {_name(dtype)}",
        gate,
        lambda: predict(models[0], data, dtype=dtype),
        lambda: predict(models[1], data, dtype=dtype),
        ">= 1.4x",
        clock=time.process_time,
    )


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def cases() -> Iterator[Case]:
    """Steps, gradients and evaluations, in the precision that is fastest here and in float32."""
    for dtype in DTYPES:
        yield step_case("mini", dtype)
        yield step_case("mid", dtype)
        for dropout in (0.1, 0.0):
            yield paper_case(dropout, dtype)
        for scale, n in EVALUATED.items():
            one = experiment("distance", "rope", scale=scale)
            models = [build_model(one.with_(impl=impl), CPU) for impl in IMPLS]
            yield evaluation_case(scale, models, one.task.build().sample(n, seed=1), dtype)
        yield evaluation_case("paper", [Decoder(PAPER, impl) for impl in IMPLS], examples(SEQUENCES), dtype)


if __name__ == "__main__":
    if (reason := missing()) is not None:
        print(f"compiled attention {reason}; nothing is timed")
    else:
        keep_freed_memory()  # As commands do.
        run("compiled", cases(), repeats=9)
