"""Evaluation on sequences of mixed lengths, against pieces of equal numbers of examples.

RoPE on `distance`, at three scales, on one thread and in processor time. The reference also sorts examples by
length and trims their padding, but always takes the same number of examples at once.
"""

import time
from collections.abc import Iterator

import torch
from benchmarks.harness import Case, run
from torch import Tensor
from torch.testing import assert_close

from spectrope.core.device import choose_device, choose_dtype, in_precision
from spectrope.core.memory import keep_freed_memory
from spectrope.core.noise import Noise
from spectrope.lab.evaluation.score import by_length, predict
from spectrope.lab.runs import build_model
from spectrope.lab.training.scales import experiment
from spectrope.models.decoder import Decoder
from spectrope.tasks.base import Batch

DEVICE = choose_device()
DTYPE = choose_dtype("auto", DEVICE)
EVALUATED = {"mini": 2000, "mid": 1000, "paper": 512}
AT_ONCE = 256  # Examples that the reference evaluates at once.


def in_equal_pieces(
    model: Decoder, data: Batch, size: int, noise: Noise | None, dtype: torch.dtype
) -> Iterator[tuple[Tensor, Tensor]]:
    """Indices and class logits of one piece after another."""
    for index, piece in by_length(data, size, trim=model.padding_is_inert):
        with in_precision(DEVICE, dtype):
            logits = model(piece.to(DEVICE), noise)
        yield index, logits.float()


@torch.inference_mode()
def predict_in_equal_pieces(model: Decoder, data: Batch, dtype: torch.dtype) -> Tensor:
    """Class logits, in the order of the data."""
    out = torch.empty(len(data), model.config.n_outputs)
    for index, logits in in_equal_pieces(model, data, AT_ONCE, None, dtype):
        out[index] = logits.cpu()
    return out


def evaluation_case(scale: str) -> Case:
    """Class logits of held-out examples."""
    one = experiment("distance", "rope", scale=scale)
    model, data = build_model(one, DEVICE), one.task.build().sample(EVALUATED[scale], seed=1)

    def gate() -> None:
        few = data[:AT_ONCE]
        exact = predict_in_equal_pieces(model, few, torch.float32)
        assert_close(predict(model, few), exact, rtol=1e-4, atol=1e-5)

    return Case(
        f"evaluation of {len(data)}, {scale}",
        gate,
        lambda: predict(model, data, dtype=DTYPE),
        lambda: predict_in_equal_pieces(model, data, DTYPE),
        clock=time.process_time,
    )


def cases() -> Iterator[Case]:
    """An evaluation at each scale."""
    for scale in EVALUATED:
        yield evaluation_case(scale)


if __name__ == "__main__":
    keep_freed_memory()  # As commands do.
    run("padding", cases(), repeats=7)
