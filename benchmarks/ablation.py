"""Ablating every head: the engine beside the same forward run once per head, at both scales and conditions.

The goal is nine tenths of the speed-up that the count of multiplications allows where both sides multiply
equally fast. A ratio can exceed that limit, since variants side by side fill a processor better than one at a
time; so the rate of multiplications of both sides is printed and stored beside it, and the ratio is the limit
times the quotient of the rates. At the paper's scale, the reference is timed on one head in six, and the time
multiplied. `python -m benchmarks.ablation 4096` takes that many examples there (64 unless told).
"""

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from benchmarks.harness import Case, Row, run
from torch import Tensor

from spectrope.core.device import choose_device
from spectrope.lab.ablation.engine import ablated_logits
from spectrope.lab.ablation.heads import ablated
from spectrope.lab.ablation.interventions import Variant, single_heads
from spectrope.lab.evaluation.score import predict
from spectrope.lab.training.scales import experiment
from spectrope.models.decoder import Decoder, DecoderConfig
from spectrope.tasks.base import Batch

SHARES = {"mini": 1, "paper": 6}  # Of the heads, one in so many is timed in the reference.


@dataclass(frozen=True)
class Count:
    """Multiplications per example, in billions: of one forward pass per head, and of those that remain.

    Saved are the layers before the head's, its own layer's attention, and keys and values of embeddings.
    """

    one_by_one: float
    shared: float

    @classmethod
    def of(cls, config: DecoderConfig, length: float) -> "Count":
        """For sequences of a mean length."""
        width, inner, layers = config.d_model, config.n_heads * config.head_dim, config.n_layers
        keys_values, feed_forward = 2 * width * inner, 2 * width * config.d_ff
        full = keys_values + 2 * width * inner + 2 * length * inner + feed_forward
        later = full - (keys_values if config.memory == "embeddings" else 0)
        own = feed_forward + config.head_dim * width
        branches = config.n_heads * (layers * own + layers * (layers - 1) / 2 * later)
        return cls(*(length * n / 1e9 for n in (config.n_heads * layers**2 * full, branches + layers * full)))

    @property
    def allowed(self) -> float:
        """The speed-up where both sides multiply equally fast."""
        return self.one_by_one / self.shared


RATES: dict[str, Callable[[Row], dict[str, float]]] = {}  # By label, from times to rates.


def one_by_one(model: Decoder, data: Batch, variants: list[Variant]) -> list[Tensor]:
    """Class logits of every variant, each from a full forward pass."""
    logits = []
    for variant in variants:
        with ablated(model, *variant):
            logits.append(predict(model, data, batch_size=256))
    return logits


def agree(model: Decoder, data: Batch, variants: list[Variant]) -> None:
    """The gate: logits of both ways differ by at most 1e-4."""
    expected = one_by_one(model, data, variants)
    for found in ablated_logits(model, data, variants):
        for row, variant in enumerate(found.variants.tolist()):
            worst = (found.logits[row] - expected[variant][found.examples]).abs().max().item()
            assert worst <= 1e-4, f"variant {variant} is off by {worst:.1e}"


def case(scale: str, condition: str, n: int) -> Case:
    """One comparison, on a network whose weights are larger than at initialisation."""
    made = experiment("distance", "rope", scale=scale, condition=condition)
    model = Decoder(made.model).eval().to(choose_device())
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.5)
    data, variants = made.task.build().sample(n, seed=0), single_heads(made.model)
    length = data.lengths.double().mean().item() if model.padding_is_inert else data.inputs.shape[1]
    count, timed = Count.of(made.model, length), variants[:: SHARES[scale]]
    label = f"{scale} {condition}, {n} examples"
    RATES[label] = partial(rates, count, n)
    return Case(
        label,
        gate=lambda: agree(model, data[: min(n, 64)], variants),
        fast=lambda: list(ablated_logits(model, data, variants)),
        reference=lambda: one_by_one(model, data, timed),
        goal=f">= {0.9 * count.allowed:.2f}x, 90 % of {count.allowed:.2f}x",
        clock=time.process_time,
        share=len(timed) / len(variants),
    )


def rates(count: Count, n: int, row: Row) -> dict[str, float]:
    """Billions of multiplications a second of both sides."""
    assert row.reference is not None
    return {
        "shared": n * count.shared / row.fast.seconds,
        "one_by_one": n * count.one_by_one / row.reference.seconds,
    }


def summary(rows: list[Row]) -> dict[str, Any]:
    """The rates of multiplications, by label."""
    found = {row.label: RATES[row.label](row) for row in rows}
    for label, rate in found.items():
        print(f"{label:>36} " + ", ".join(f"{side} {value:.3g} G/s" for side, value in rate.items()))
    return {"multiplications_g_per_s": found}


def cases(n: int) -> Iterator[Case]:
    for scale, size in (("mini", 1024), ("paper", n)):
        for condition in ("controlled", "described", "released"):
            yield case(scale, condition, size)


if __name__ == "__main__":
    run("ablation", cases(int(sys.argv[1]) if len(sys.argv) > 1 else 64), repeats=3, summary=summary)
