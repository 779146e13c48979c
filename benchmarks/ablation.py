"""Ablating every head: the engine beside the same forward run once per head, at both scales and conditions.

Each label carries the speed-up that the count of multiplications allows; the goal is nine tenths of it.
`python -m benchmarks.ablation 4096` takes that many examples at the paper's scale (64 unless told).
"""

import sys
from collections.abc import Iterator

import torch
from benchmarks.harness import Case, run
from torch import Tensor

from spectrope.core.device import choose_device
from spectrope.lab.ablation.engine import ablated_logits
from spectrope.lab.ablation.heads import ablated
from spectrope.lab.ablation.interventions import Variant, single_heads
from spectrope.lab.evaluation.score import predict
from spectrope.lab.training.scales import experiment
from spectrope.models.decoder import Decoder, DecoderConfig
from spectrope.tasks.base import Batch


def allowed_speedup(config: DecoderConfig, length: float) -> float:
    """Multiplications of one forward per head over those that cannot be saved, per example.

    Saved are the layers before the head's, its own layer's attention, and keys and values of embeddings.
    """
    width, inner, layers = config.d_model, config.n_heads * config.head_dim, config.n_layers
    keys_values, feed_forward = 2 * width * inner, 2 * width * config.d_ff
    full = keys_values + 2 * width * inner + 2 * length * inner + feed_forward
    later = full - (keys_values if config.memory == "embeddings" else 0)
    own = feed_forward + config.head_dim * width
    branches = config.n_heads * (layers * own + layers * (layers - 1) / 2 * later)
    return config.n_heads * layers**2 * full / (branches + layers * full)


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
    allowed = allowed_speedup(made.model, length)
    return Case(
        f"{scale} {condition}, {n} examples",
        gate=lambda: agree(model, data[: min(n, 64)], variants),
        fast=lambda: list(ablated_logits(model, data, variants)),
        reference=lambda: one_by_one(model, data, variants),
        goal=f">= {0.9 * allowed:.2f}x, 90 % of {allowed:.2f}x",
    )


def cases(n: int) -> Iterator[Case]:
    for scale, size in (("mini", 1024), ("paper", n)):
        for condition in ("controlled", "described", "released"):
            yield case(scale, condition, size)


if __name__ == "__main__":
    run("ablation", cases(int(sys.argv[1]) if len(sys.argv) > 1 else 64), threads=2, repeats=3)
