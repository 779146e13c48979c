"""A training step and an evaluation of the paper's model, against torch's own encoder without encoding."""

from collections.abc import Iterator
from dataclasses import replace

import torch
import torch.nn.functional as F
from benchmarks.harness import Case, run
from torch import Tensor, nn
from torch.testing import assert_close

from spectrope.core.device import choose_device, choose_dtype
from spectrope.core.noise import Noise
from spectrope.encodings.rope import RoPE
from spectrope.lab.evaluation.score import predict
from spectrope.lab.training.config import TrainingConfig
from spectrope.lab.training.loop import accumulate, make_optimiser
from spectrope.models.decoder import Decoder, DecoderConfig
from spectrope.tasks.base import Batch

LENGTH, BATCH, EVALUATED, GATED = 128, 512, 1024, 32
DEVICE = choose_device()
DTYPE = choose_dtype("auto", DEVICE)
PAPER = DecoderConfig(encoding=RoPE.Config())
MICRO_BATCH = 32 if DEVICE.type == "cpu" else BATCH


class Baseline(nn.Module):
    """torch's own pre-norm encoder layers in the same model, with the same sites of dropout."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.tokens = nn.Embedding(config.vocabulary, config.d_model)
        layer = nn.TransformerEncoderLayer(
            config.d_model,
            config.n_heads,
            config.d_ff,
            config.dropout,
            batch_first=True,
            norm_first=True,
        )
        self.encoder = nn.TransformerEncoder(layer, config.n_layers, enable_nested_tensor=False)
        self.classifier = nn.Linear(config.d_model, config.n_outputs)

    def forward(self, inputs: Tensor) -> Tensor:
        """Class logits of token ids (b, t)."""
        mask = nn.Transformer.generate_square_subsequent_mask(inputs.shape[1], device=inputs.device)
        return self.classifier(self.encoder(self.tokens(inputs), mask=mask, is_causal=True).mean(1))


def examples(n: int) -> Batch:
    """Random token sequences of full length."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randint(1, PAPER.vocabulary, (n, LENGTH), generator=generator)
    labels = torch.randint(0, PAPER.n_labels, (n,), generator=generator)
    return Batch(inputs, labels, torch.full((n,), LENGTH))


def decoder(config: DecoderConfig, impl: str = "fastest") -> Decoder:
    """The paper's model, the same weights every time."""
    return Decoder(config, impl).to(DEVICE)


def gradient(model: Decoder, data: Batch, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Loss, and the gradient of all parameters as one vector, under the same dropout masks every time."""
    model.zero_grad(set_to_none=True)
    p = model.config.dropout
    noise = Noise(p, 0, DEVICE) if p else None
    loss = accumulate(model, data, noise, len(data), dtype)
    return loss, torch.cat([q.grad.flatten() for q in model.parameters() if q.grad is not None])


def training_gate(config: DecoderConfig) -> None:
    """float32 equal to the reference to 1e-4; bfloat16 with its loss within 2 % and cosine at least .99."""
    data = examples(GATED)
    loss, grad = gradient(decoder(config, "reference"), data, torch.float32)
    ours, our_grad = gradient(decoder(config), data, torch.float32)
    assert_close(ours, loss, rtol=1e-4, atol=1e-4)
    assert_close(our_grad, grad, rtol=1e-4, atol=1e-4)
    if torch.float32 != DTYPE:
        low, low_grad = gradient(decoder(config), data, DTYPE)
        assert_close(low, loss, rtol=0.02, atol=0)
        assert F.cosine_similarity(low_grad, grad, dim=0) >= 0.99


def training_case(dropout: float, goal: str) -> Case:
    """One optimiser step at batch 512."""
    config = replace(PAPER, dropout=dropout)
    model, baseline = decoder(config), Baseline(config).to(DEVICE)
    ours = make_optimiser(model, TrainingConfig())
    theirs = torch.optim.AdamW(baseline.parameters(), lr=1e-4)
    data = examples(BATCH)

    def fast() -> None:
        ours.zero_grad(set_to_none=True)
        accumulate(model, data, Noise(dropout, 1, DEVICE) if dropout else None, MICRO_BATCH, DTYPE)
        ours.step()

    def reference() -> None:
        theirs.zero_grad(set_to_none=True)
        for inputs, labels in zip(
            data.inputs.split(MICRO_BATCH), data.labels.split(MICRO_BATCH), strict=True
        ):
            loss = F.cross_entropy(baseline(inputs.to(DEVICE)), labels.to(DEVICE), reduction="sum")
            (loss / BATCH).backward()
        theirs.step()

    return Case(f"training step, dropout {dropout}", lambda: training_gate(config), fast, reference, goal)


def evaluation_case() -> Case:
    """Class logits of 1,024 examples."""
    model, baseline, data = decoder(PAPER), Baseline(PAPER).to(DEVICE).eval(), examples(EVALUATED)

    def gate() -> None:
        few = data[:GATED]
        exact = predict(decoder(PAPER, "reference"), few)
        assert_close(predict(model, few), exact, rtol=1e-4, atol=1e-4)
        low = predict(model, few, dtype=DTYPE)
        assert F.cosine_similarity(low.flatten(), exact.flatten(), dim=0) >= 0.99

    @torch.inference_mode()
    def reference() -> None:
        for inputs in data.inputs.split(MICRO_BATCH):
            baseline(inputs.to(DEVICE))

    return Case(
        "evaluation",
        gate,
        lambda: predict(model, data, batch_size=MICRO_BATCH, dtype=DTYPE),
        reference,
        ">= 3x",
    )


def cases() -> Iterator[Case]:
    """The steps and the evaluation; the goals are for a processor that multiplies bfloat16."""
    yield training_case(0.1, ">= 8x")
    yield training_case(0.0, ">= 2.5x")
    yield evaluation_case()


if __name__ == "__main__":
    run("training", cases(), threads=2, repeats=3)
