"""Locks and the hook while training: seconds of a lock and a check, and what the hook adds to a step.

Every other step is measured, and its processor time is compared with that of the step after it, pair by pair,
so that a busy machine disturbs both. Steps that are not measured pass two hooks that do nothing.
"""

import copy
import json
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch
from benchmarks.harness import store
from scipy.stats import binom
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

import spectrope as sp
from spectrope.checkpoints.lock import lock
from spectrope.checkpoints.lock.opening import checked

EVERY, PAIRS = 20, 24
BATCH, LENGTH = 4, 128


def llama(width: int, layers: int, heads: int, vocabulary: int = 4096, grouped: int = 4) -> Any:
    """A random-weight Llama with so many query heads per key head."""
    torch.manual_seed(0)
    sizes: Any = {"hidden_size": width, "intermediate_size": 7 * width // 2, "num_hidden_layers": layers}
    keys = heads // grouped
    config = LlamaConfig(**sizes, num_attention_heads=heads, vocab_size=vocabulary, num_key_value_heads=keys)
    return LlamaForCausalLM(config)


def cpu_seconds(call: Callable[[], object]) -> float:
    """Processor seconds of one call, of all threads."""
    start = time.process_time()
    call()
    return time.process_time() - start


@dataclass(frozen=True)
class Overhead:
    """What the hook adds to a training step.

    Args:
        label: The model.
        step_seconds: Processor seconds of a step without a measurement, the median.
        percent: What measuring every 20th step adds on average, in percent of that: the median over pairs.
        low: Lower end of the median's 95 % interval, by order statistics.
        high: Its upper end.
        pairs: Number of pairs.
        measured_step_percent: What a step that is measured takes longer, in percent: the median.
    """

    label: str
    step_seconds: float
    percent: float
    low: float
    high: float
    pairs: int
    measured_step_percent: float


def gate(model: Any, ids: Tensor) -> None:
    """Losses and gradients with the hook are those without it, bit for bit, and heads are recorded."""
    plain = copy.deepcopy(model)
    with sp.watch_training(model, every=1, on_move="stop") as watch:
        losses = [one(input_ids=ids, labels=ids).loss for one in (plain, model)]
        for loss in losses:
            loss.backward()
        watch.step()
    assert torch.equal(*losses), "the hook changes the loss"
    pairs = zip(plain.parameters(), model.parameters(), strict=True)
    assert all(torch.equal(a.grad, b.grad) for a, b in pairs), "the hook changes gradients"
    assert watch.records, "nothing was recorded"


def overhead(label: str, model: Any) -> Overhead:
    """Gate, then pairs of neighbouring steps, of which one is measured."""
    ids = torch.randint(4096, (BATCH, LENGTH), generator=torch.Generator().manual_seed(0))
    model.train()
    gate(model, ids)
    model.zero_grad()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    with sp.watch_training(model, every=2, on_move="stop") as watch:

        def step() -> None:
            model(input_ids=ids, labels=ids).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            watch.step()

        seconds = [cpu_seconds(step) for _ in range(2 + 2 * PAIRS)][2:]
    measured, plain = seconds[0::2], seconds[1::2]
    ratios = sorted(100 * (a / b - 1) for a, b in zip(measured, plain, strict=True))
    k = int(binom.ppf(0.025, PAIRS, 0.5))
    ends = ratios[k - 1] / EVERY, ratios[PAIRS - k] / EVERY
    middle = statistics.median(ratios)
    return Overhead(label, statistics.median(plain), middle / EVERY, *ends, PAIRS, middle)


def locks() -> Iterator[dict[str, Any]]:
    """Processor seconds of a lock and of a check of two layers, serving modes included."""
    half = torch.bfloat16
    for width, dtype, grouped in (
        (64, torch.float32, 4),
        (2048, torch.float32, 4),
        (4096, half, 4),
        (4096, half, 1),
    ):
        torch.set_default_dtype(dtype)
        model = llama(width, 2, max(4, width // 128), 32_000 if grouped == 1 else 8192, grouped).eval()
        torch.set_default_dtype(torch.float32)
        held: list[Any] = []
        seconds = cpu_seconds(lambda model=model, held=held: held.append(lock(model, watch=sp.unwatched)))
        result: list[Any] = []
        again = cpu_seconds(
            lambda model=model, held=held, result=result: result.append(checked(held[0], model, sp.unwatched))
        )
        assert result[0].ok, str(result[0])
        assert result[0].whole
        label = f"2 layers of width {width} in {dtype}, {grouped} query heads per key head"
        yield {"label": label, "lock": seconds, "check": again}


def cases() -> Iterator[tuple[str, Any]]:
    yield "4 layers of width 128", llama(128, 4, 4)
    yield "4 layers of width 256", llama(256, 4, 4)


if __name__ == "__main__":
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    for label, model in cases():
        rows.append(asdict(overhead(label, model)))
        print(json.dumps(rows[-1]), flush=True)
    store("lock", rows)
    for one in locks():
        rows.append(one)
        print(json.dumps(one), flush=True)
    store("lock", rows)
