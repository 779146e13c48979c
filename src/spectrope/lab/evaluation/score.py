"""Loss and accuracy of a model on examples; padding is trimmed where it does not affect the outputs."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from spectrope.core import in_precision
from spectrope.models import Decoder
from spectrope.tasks import Batch

IGNORED = -100  # torch's own mark for a label that the loss leaves out


@dataclass(frozen=True)
class Score:
    """Loss and accuracy of a model on n examples.

    Args:
        loss: Mean cross-entropy, in nats.
        accuracy: Fraction of examples whose most likely class is the label.
        n: Number of examples counted.
    """

    loss: float
    accuracy: float
    n: int


def by_length(batch: Batch, size: int, *, trim: bool) -> Iterator[tuple[Tensor, Batch]]:
    """Pieces of at most `size` examples with their indices, shortest first and trimmed if `trim`.

    Args:
        batch: The examples.
        size: Largest piece.
        trim: Whether to trim padding, which is safe if the model ignores it.
    """
    order = batch.lengths.argsort(stable=True) if trim else torch.arange(len(batch))
    for index in order.split(size):
        piece = batch[index]
        yield index, piece.trimmed() if trim else piece


def counted_labels(model: Decoder, labels: Tensor) -> Tensor:
    """Labels, with `IGNORED` in place of those that the model's configuration excludes."""
    skipped = model.config.ignored_label
    return labels if skipped is None else labels.masked_fill(labels == skipped, IGNORED)


@torch.inference_mode()
def predict(
    model: Decoder, data: Batch, *, batch_size: int = 256, dtype: torch.dtype = torch.float32
) -> Float[Tensor, "n classes"]:
    """Class logits of every example, in float32 and on the CPU, in the order of `data`."""
    device = next(model.parameters()).device
    out = torch.empty(len(data), model.config.n_outputs)
    for index, piece in by_length(data, batch_size, trim=model.padding_is_inert):
        with in_precision(device, dtype):
            out[index] = model(piece.to(device)).float().cpu()
    return out


def correct(model: Decoder, data: Batch, logits: Float[Tensor, "n classes"]) -> Bool[Tensor, " m"]:
    """Whether the most likely class is the label, for examples whose label is not ignored."""
    labels = counted_labels(model, data.labels)
    return (logits.argmax(-1) == labels)[labels != IGNORED]


def score(model: Decoder, data: Batch, *, batch_size: int = 256, dtype: torch.dtype = torch.float32) -> Score:
    """Loss and accuracy of a model on examples, without dropout."""
    logits = predict(model, data, batch_size=batch_size, dtype=dtype)
    hits = correct(model, data, logits)
    loss = F.cross_entropy(logits, counted_labels(model, data.labels), ignore_index=IGNORED)
    return Score(float(loss), hits.double().mean().item(), len(hits))
