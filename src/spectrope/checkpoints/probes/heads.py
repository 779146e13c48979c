"""Queries, keys, logits and hidden states of the attention layers of a checkpoint on real text."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from spectrope.checkpoints.adapters import Call
from spectrope.core import UnsupportedError
from spectrope.encodings import (
    Composite,
    Context,
    Encoding,
    EncodingConfig,
    Form,
    NoPE,
    Pairing,
    RoPE,
    Schedule,
    Side,
)
from spectrope.lab import LayerHeads


class Unseen(Encoding):
    """An encoding of which only masked logits are known, so that permutation tests are impossible."""

    form = Form.GENERAL
    tags = frozenset()


@dataclass(frozen=True, kw_only=True)
class Measured(Schedule):
    """Frequencies that were read from a running model."""

    radians: tuple[float, ...]  # Per position, for each pair.
    factor: float = 1.0  # On queries and keys alike.

    @property
    def gain(self) -> float:
        """The factor."""
        return self.factor

    def frequencies(self, width: int) -> Float[Tensor, " m"]:
        """The frequencies, whatever the width."""
        return torch.tensor(self.radians, dtype=torch.float64)


class MeasuredRotation(Composite):
    """The rotation that a kernel's queries and keys went through, on coordinates [start, start + width).

    Args:
        start: First rotated coordinate.
        schedule: Frequencies of the pairs.
        pairs: How the kernel sees the pairs.
    """

    def __init__(self, start: int, schedule: Measured, pairs: Pairing) -> None:
        width = 2 * len(schedule.radians)
        inner = RoPE(RoPE.Config(head_dim=width, schedule=schedule, pairs=pairs))
        super().__init__(EncodingConfig(), [inner])
        self.start, self.stop = start, start + width

    def rotate(self, x: Float[Tensor, "b h t d"], pos: Tensor, side: Side) -> Float[Tensor, "b h t d"]:
        turned = self.terms[0].rotate(x[..., self.start : self.stop], pos, side)
        return torch.cat([x[..., : self.start], turned, x[..., self.stop :]], -1)

    def undone(self, x: Float[Tensor, "b h t d"], pos: Tensor, side: Side) -> Float[Tensor, "b h t d"]:
        """What `rotate` has turned into x."""
        inner = self.terms[0]
        assert isinstance(inner, RoPE)
        turned = inner.rotate(x[..., self.start : self.stop], -pos, side) / inner.gain**2
        return torch.cat([x[..., : self.start], turned, x[..., self.stop :]], -1)


@dataclass(frozen=True, eq=False)
class Applied:
    """The positional encoding of a layer, which does not depend on content.

    Args:
        encoding: NoPE or a measured rotation, to which a bias may come; or nothing known.
        scale: Factor on dot products.
    """

    encoding: NoPE | MeasuredRotation | Unseen
    scale: float


@dataclass(frozen=True, eq=False)
class RecordedHeads(LayerHeads):
    """One layer's attention as its kernel received it; `ctx` holds queries and keys before rotation.

    Args:
        received: Logits, bias included, with shape (b, h, t, t); zero above the diagonal of a causal layer
            where its code shows no more.
        added: What the kernel adds to the product, broadcastable to that, or None.
    """

    received: Float[Tensor, "b h t t"]
    added: Float[Tensor, "#b #h t t"] | None

    @cached_property
    def logits(self) -> Float[Tensor, "b h t t"]:
        """Attention logits before the mask and before softmax."""
        return self.received

    @cached_property
    def bias(self) -> Float[Tensor, "#b #h t t"] | None:
        """What is added to the product, in logit units, or None."""
        return self.added


def joined(calls: Sequence[Call]) -> Call:
    """Calls of one module on parts of a batch as one on all of it."""
    first = calls[0]
    if len(calls) == 1:
        return first
    parts = {field.name: [getattr(call, field.name) for call in calls] for field in fields(first)}
    sizes = [len(call.q) for call in calls]
    return replace(first, **{name: _whole(some, sizes) for name, some in parts.items()})


def _whole(parts: list[Any], sizes: list[int]) -> Any:
    if not isinstance(parts[0], Tensor):
        return parts[0]
    return torch.cat([part.expand(n, *part.shape[1:]) for part, n in zip(parts, sizes, strict=True)])


def recorded_heads(place: int, call: Call, x: Float[Tensor, "b t c"], applied: Applied) -> RecordedHeads:
    """A layer's attention from what its kernel received.

    Args:
        place: Number of the layer.
        call: On the CPU.
        x: Hidden states that enter it.
        applied: The positional encoding of the layer.

    Raises:
        UnsupportedError: If it sees neither all of the past alone nor everything, or has sinks.
    """
    refuse_sinks(call)
    pos, encoding = torch.arange(x.shape[1])[None], applied.encoding
    groups = call.q.shape[1] // call.k.shape[1]
    q, k = call.q.float(), call.k.float().repeat_interleave(groups, 1)
    if isinstance(encoding, Unseen):
        logits, added = call.unmasked().float().masked_fill(~call.allowed, 0.0), None
    else:
        logits, added = (q @ k.mT) * applied.scale, call.bias
        logits = logits if added is None else logits + added
    if isinstance(encoding, MeasuredRotation):
        q, k = encoding.undone(q, pos, "query"), encoding.undone(k, pos, "key")
    return RecordedHeads(place, encoding, is_causal(call), Context(q, k, pos, pos, x, x), logits, added)


def refuse_sinks(call: Call) -> None:
    """Refuse a kernel whose weights of keys sum to less than one.

    Raises:
        UnsupportedError: If it has sinks.
    """
    if call.sinks is not None:
        raise UnsupportedError(
            f"{call.module} has attention sinks; this measurement only supports plain softmax."
        )


def is_causal(call: Call) -> bool:
    """Whether attention is causal or bidirectional.

    Raises:
        UnsupportedError: If neither.
    """
    allowed = call.allowed
    if bool(allowed.all()):
        return False
    if bool((allowed == torch.ones_like(allowed).tril()).all()):
        return True
    raise UnsupportedError(
        f"{call.module} sees neither all of the past nor everything; measure no more tokens than its window "
        "holds."
    )
