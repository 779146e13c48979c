"""Learning of each head at one training step: its gradient by lag and frequency, and its tangent kernels."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from spectrope.attention import Heads, MultiHead, Stream, additive_mask
from spectrope.core import UnsupportedError
from spectrope.encodings import Encoding, Tag
from spectrope.lab.evaluation.score import IGNORED, counted_labels
from spectrope.lab.probes.heads import LayerHeads
from spectrope.lab.probes.observed import spacing
from spectrope.lab.probes.rotation import SteadyRotation, encoding_of_head, steady_rotation
from spectrope.lab.probes.tangents import Kernels, LastRows
from spectrope.models import Decoder
from spectrope.spectral import GradientSpectrum, gradient_spectrum, lag_gradients
from spectrope.tasks import Batch

ENTRIES = 2**25  # Of gradients by lag at once, 256 MiB.
STILL = torch.zeros(1, dtype=torch.float64)  # The frequency of what does not turn.


@dataclass(frozen=True, eq=False)
class HeadLearning:
    r"""One head. M is its form :math:`W_Q^\top W_K`, which logits divide by the square root of its width.

    Args:
        frequencies: Frequencies of its rotation in radians per token, with shape (m,); only 0 without a
            rotation, None if the rotation has no fixed frequencies.
        gradient: Gradient of the loss with respect to M, by lag and by these frequencies.
        weight_energy: :math:`\|W_Q^\top W_K\|^2`.
        kernels: Tangent kernels of the logits; None if content enters them other than by the product of
            queries and keys, or the rotation has no fixed frequencies.
        plain_kernels: Tangent kernels of the logits without rotation, or None as above.
    """

    frequencies: Float[Tensor, " m"] | None
    gradient: GradientSpectrum
    weight_energy: float
    kernels: Kernels | None
    plain_kernels: Kernels | None

    @property
    def gradient_energy(self) -> float | None:
        """Energy of the gradient through the product of queries and keys, summed over its frequencies."""
        return None if self.frequencies is None else self.gradient.frequency_energy.sum().item()


def learning(model: Decoder, batch: Batch) -> Iterator[tuple[HeadLearning, ...]]:
    """Every head, layer by layer, from one forward and backward pass without dropout.

    Weights, stored gradients and random streams are not changed.

    Args:
        model: A decoder with multi-head attention.
        batch: Examples whose mean loss is differentiated, on the device of the model.

    Raises:
        UnsupportedError: If attention is of another kind, or positions are not equally spaced.
    """
    for layer, (call, gradient) in enumerate(_calls(model, batch)):
        yield _layer(layer, call, gradient, batch.lengths)


@dataclass(frozen=True)
class _Call:
    heads: MultiHead
    x: Tensor
    stream: Stream
    encoding: Encoding


@torch.enable_grad()
def _calls(model: Decoder, batch: Batch) -> list[tuple[_Call, Float[Tensor, "b h t e"]]]:
    """What each layer's heads were called with, and the loss's gradient by their outputs."""
    calls: list[_Call] = []
    outputs: list[Tensor] = []

    def keep(heads: Heads, args: tuple[Any, ...], output: Tensor) -> None:
        if not isinstance(heads, MultiHead):
            raise UnsupportedError(
                f"the probe of learning only supports multi-head attention; got {type(heads).__name__}."
            )
        x, stream, encoding, _ = args
        calls.append(_Call(heads, x.detach(), stream, encoding))
        outputs.append(output)

    with ExitStack() as hooks:
        for block in model.blocks:
            hooks.callback(block.heads.register_forward_hook(keep).remove)  # pyright: ignore[reportAttributeAccessIssue, reportCallIssue]
        logits = model(batch)
    loss = F.cross_entropy(logits, counted_labels(model, batch.labels), ignore_index=IGNORED)
    return list(zip(calls, torch.autograd.grad(loss, outputs), strict=True))


def _layer(number: int, call: _Call, gradient: Tensor, lengths: Tensor) -> tuple[HeadLearning, ...]:
    heads = call.heads
    with torch.no_grad():
        ctx, v = heads.context(call.x, call.stream)
    layer = LayerHeads(number, call.encoding, heads.causal, ctx)
    by_logits = _logit_gradients(layer, v, gradient)
    energies = _form_energies(heads)
    each = zip(range(len(energies)), _by_lag(layer, by_logits), energies, strict=True)
    return tuple(_head(layer, *head, lengths) for head in each)


@torch.no_grad()
def _by_lag(layer: LayerHeads, by_logits: Float[Tensor, "b h t t"]) -> Iterator[Float[Tensor, "lags c c"]]:
    """Each head's gradient by its form at every lag, for as many heads at once as memory is good for."""
    ctx = layer.ctx
    assert ctx.x_q is not None
    _, width, c = ctx.x_q.shape
    for some in (layer.encoding.scaled(by_logits) * ctx.scale).split(
        max(1, ENTRIES // (width * c**2)), dim=1
    ):
        yield from lag_gradients(some, ctx.x_q, layer.causal, ctx.x_k).cpu()


def _logit_gradients(
    layer: LayerHeads, v: Tensor, gradient: Float[Tensor, "b h t e"]
) -> Float[Tensor, "b h t t"]:
    """The loss's gradient by the logits, from that by the heads' outputs; 0 where attention is barred."""
    ctx, mask = layer.ctx, additive_mask(layer.ctx, layer.causal)
    with torch.no_grad():
        logits = layer.logits
    with torch.enable_grad():
        logits = logits.detach().requires_grad_()
        pattern = (logits if mask is None else logits + mask).softmax(-1)
        (by_logits,) = torch.autograd.grad(layer.encoding.read(pattern, v, ctx), logits, gradient)
    return by_logits


@torch.no_grad()
def _form_energies(heads: MultiHead) -> list[float]:
    w_q, w_k, _ = heads.qkv.weight.double().unflatten(0, (3, heads.n_heads, -1))
    return ((w_q @ w_q.mT) * (w_k @ w_k.mT)).sum((1, 2)).tolist()


@torch.no_grad()
def _head(
    layer: LayerHeads, head: int, by_lag: Float[Tensor, "lags c c"], weight_energy: float, lengths: Tensor
) -> HeadLearning:
    ctx = layer.ctx
    encoding, apart = encoding_of_head(layer.encoding, head), spacing(ctx.q_pos)
    rotation = steady_rotation(encoding, ctx.q.shape[-1])
    frequencies = _frequencies(encoding, rotation, apart)
    plain = turned = None
    if _is_product(layer.encoding) and frequencies is not None:
        rows = LastRows(layer, head, lengths)
        plain = rows.plain()
        turned = plain if rotation is None else rows.turned(rotation, apart)
    return HeadLearning(
        frequencies=frequencies,
        gradient=gradient_spectrum(by_lag, STILL if frequencies is None else frequencies, layer.causal),
        weight_energy=weight_energy,
        kernels=turned,
        plain_kernels=plain,
    )


def _is_product(encoding: Encoding) -> bool:
    """Whether logits depend on the weights through the product of queries and keys alone."""
    return encoding.factors and Tag.CONTENT_FREE in encoding.tags


def _frequencies(
    encoding: Encoding, rotation: SteadyRotation | None, apart: float
) -> Float[Tensor, " m"] | None:
    if rotation is not None:
        return rotation.frequencies * apart
    return None if encoding.turns else STILL
