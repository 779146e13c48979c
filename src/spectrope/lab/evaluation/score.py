"""Loss and accuracy of a model on examples; padding is trimmed where it does not affect the outputs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from spectrope.core import in_precision
from spectrope.models import Decoder
from spectrope.tasks import Batch

IGNORED = -100  # torch's own mark for a label that the loss leaves out
# Numbers in one batch's residual stream, variants included: few enough for a cache, or to fill a GPU.
BUDGET = {"cpu": 2**19, "cuda": 2**26}
# Numbers in a residual stream that take as long as the fixed cost of one more forward pass.
PASS = {"cpu": 2**15, "cuda": 2**26}


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


def by_length(
    batch: Batch, size: int, *, trim: bool, tokens: int | None = None, padding: int | None = None
) -> Iterator[tuple[Tensor, Batch]]:
    """Pieces of at most `size` examples with their indices, shortest first and trimmed if `trim`.

    Args:
        batch: The examples.
        size: Most examples of a piece.
        trim: Whether to trim padding, which is safe if the model ignores it.
        tokens: Most tokens of a piece, padding included, unless one example has more; None for no limit.
        padding: Pieces are halved as long as that saves more tokens of padding than this; None for never.
    """
    order = batch.lengths.argsort(stable=True) if trim else torch.arange(len(batch))
    widths = batch.lengths[order].tolist() if trim else [batch.inputs.shape[1]] * len(batch)
    sizes, start = [], 0
    for length in _filled(widths, size, tokens):
        sizes += _halved(widths[start : start + length], padding)
        start += length
    for index in order.split(sizes):
        piece = batch[index]
        yield index, piece.trimmed() if trim else piece


def pieces(
    model: Decoder, data: Batch, size: int, tokens: int | None = None
) -> Iterator[tuple[Tensor, Batch]]:
    """Pieces for the forward passes of a model, by `by_length`: as few as padding makes worthwhile."""
    padding = PASS[next(model.parameters()).device.type] // model.config.d_model
    return by_length(data, size, trim=model.padding_is_inert, tokens=tokens, padding=padding)


def most_tokens(model: Decoder) -> int:
    """Tokens that a forward pass without gradients takes at once, where it is fastest."""
    return BUDGET[next(model.parameters()).device.type] // model.config.d_model


def _filled(widths: Sequence[int], size: int, tokens: int | None) -> list[int]:
    """Numbers of examples of successive pieces, each as large as allowed; widths do not decrease."""
    sizes = [0]
    for width in widths:
        full = tokens is not None and (sizes[-1] + 1) * width > tokens
        if sizes[-1] == size or (sizes[-1] and full):
            sizes.append(0)
        sizes[-1] += 1
    return sizes


def _halved(widths: Sequence[int], padding: int | None) -> list[int]:
    """Numbers of examples of the parts of a piece; widths do not decrease."""
    half = len(widths) // 2
    if padding is None or half == 0 or half * (widths[-1] - widths[half - 1]) <= padding:
        return [len(widths)]
    return _halved(widths[:half], padding) + _halved(widths[half:], padding)


def counted_labels(model: Decoder, labels: Tensor) -> Tensor:
    """Labels, with `IGNORED` in place of those that the model's configuration excludes."""
    skipped = model.config.ignored_label
    return labels if skipped is None else labels.masked_fill(labels == skipped, IGNORED)


@torch.inference_mode()
def predict(
    model: Decoder, data: Batch, *, batch_size: int = 256, dtype: torch.dtype = torch.float32
) -> Float[Tensor, "n classes"]:
    """Class logits of every example, in float32 and on the CPU, in the order of `data`.

    A forward pass takes at most `batch_size` examples, and fewer of long ones, by `most_tokens`.
    """
    device = next(model.parameters()).device
    out = torch.empty(len(data), model.config.n_outputs)
    for index, piece in pieces(model, data, batch_size, most_tokens(model)):
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
