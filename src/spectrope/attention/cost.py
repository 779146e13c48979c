"""Time and memory of one attention layer with an encoding, relative to the same layer without one."""

import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from spectrope.attention.base import attention, fastest
from spectrope.core import ConfigError, SpectropeError, seconds, torch_stream
from spectrope.encodings import ENCODINGS, Context, Encoding, NoPE

N_HEADS, HEAD_DIM = 16, 16  # The paper's heads.
PATTERN = 8 * 128 * 128  # Entries of one head's patterns in a batch; longer sequences make smaller batches.
REPEATS = 15  # Pairs of timings of each quantity.
SAMPLE_SECONDS = 0.01  # Least duration of one timing; shorter calls are repeated within it.


@dataclass(frozen=True)
class Ratio:
    """Cost relative to NoPE: the median over pairs of timings taken in turn, and the quartiles around it."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, encoded: Sequence[float], without: Sequence[float]) -> "Ratio":
        """From timings in pairs."""
        low, median, high = np.quantile(np.divide(encoded, without), (0.25, 0.5, 0.75))
        return cls(float(median), float(low), float(high))


@dataclass(frozen=True)
class EncodingCost:
    """Cost of one encoding.

    Args:
        encoding: Its name.
        impl: The implementation of attention used.
        forward: Time of the forward pass.
        backward: Time of the backward pass.
        memory: Peak memory that forward and backward pass allocate, relative to NoPE.
        mib: The same peak memory in MiB.
    """

    encoding: str
    impl: str
    forward: Ratio
    backward: Ratio
    memory: float
    mib: float


@dataclass(frozen=True)
class UncostedEncoding:
    """An encoding that cannot be measured at this length, and why."""

    encoding: str
    reason: str


def costs(
    names: Sequence[str], length: int, device: torch.device
) -> Iterator[EncodingCost | UncostedEncoding]:
    """Measure each encoding in alternation with NoPE, on the same queries, keys and values.

    The forward pass covers one causal layer with the paper's heads in float32, from the term added to the
    input to the outputs of the heads, without projections. The backward pass computes the gradients of
    queries, keys, values, input and parameters.

    Args:
        names: Registered encodings, with their defaults.
        length: Tokens of each sequence.
        device: Device to compute on.

    Raises:
        ConfigError: If the length is not positive.
        UnknownNameError: If no encoding has one of the names.
    """
    if length < 1:
        raise ConfigError(f"length must be at least 1; got {length}.")
    for name in names:
        ENCODINGS[name]
    without = _Layer(NoPE(NoPE.Config()), length, device)
    base = without.peak()
    for name in names:
        try:
            layer = _Layer(_built(name, length), length, device)
            peak = layer.peak()
        except SpectropeError as refusal:
            yield UncostedEncoding(name, str(refusal))
            continue
        forward = Ratio.of(*_in_turn(layer.forward, without.forward, device))
        backward = Ratio.of(*_in_turn(layer.backward_alone(), without.backward_alone(), device))
        yield EncodingCost(name, layer.impl, forward, backward, peak / base, peak / 2**20)


def batch_size(length: int) -> int:
    """Sequences in a batch: 8 up to a length of 128, fewer at greater ones."""
    return max(1, min(8, PATTERN // length**2))


def _built(name: str, length: int) -> Encoding:
    sizes = {"d_model": N_HEADS * HEAD_DIM, "n_heads": N_HEADS, "head_dim": HEAD_DIM}
    return ENCODINGS.config(name)().fitted(**sizes, max_length=length, causal=True).build()


class _Layer:
    """One encoding in one layer, on inputs that all encodings share."""

    def __init__(self, encoding: Encoding, length: int, device: torch.device) -> None:
        self.encoding, self.device = encoding.to(device), device
        self.impl = fastest(encoding, device)
        stream, batch = torch_stream(0, "cost"), batch_size(length)

        def draw(*shape: int) -> Tensor:
            return torch.randn(shape, generator=stream).to(device).requires_grad_()

        self.q, self.k, self.v = (draw(batch, N_HEADS, length, HEAD_DIM) for _ in range(3))
        self.x = draw(batch, length, N_HEADS * HEAD_DIM)
        self.pos = torch.arange(length, device=device)[None]
        self.leaves = [self.q, self.k, self.v, self.x, *(p for p in encoding.parameters() if p.requires_grad)]

    def forward(self) -> tuple[Tensor, Tensor]:
        """Input with what the encoding adds to it, and outputs of the heads."""
        x = self.encoding.embed(self.x, self.pos)
        ctx = Context(self.q, self.k, self.pos, self.pos, x, x)
        return x, attention(ctx, self.v, self.encoding, causal=True, impl=self.impl)

    def backward_alone(self) -> Callable[[], None]:
        """The backward pass of a forward pass made now."""
        outputs = self.forward()
        ones = [torch.ones_like(output) for output in outputs]
        return lambda: self._gradients(outputs, ones, retain_graph=True)

    def peak(self) -> int:
        """Most bytes allocated at a time by a forward and a backward pass."""
        with Allocations() as seen:
            outputs = self.forward()
            self._gradients(outputs, [torch.ones_like(output) for output in outputs])
        return seen.peak

    def _gradients(self, outputs: Sequence[Tensor], grads: Sequence[Tensor], **how: Any) -> None:
        torch.autograd.grad(outputs, self.leaves, grads, allow_unused=True, **how)


def _in_turn(
    encoded: Callable[[], object], without: Callable[[], object], device: torch.device
) -> tuple[list[float], list[float]]:
    """Seconds per call of both, timed alternately so that a busy machine slows both alike."""
    calls = max(
        1, round(SAMPLE_SECONDS / min(seconds(f, device) for f in (encoded, without, encoded, without)))
    )
    pairs = [(seconds(encoded, device, calls), seconds(without, device, calls)) for _ in range(REPEATS)]
    return [a for a, _ in pairs], [b for _, b in pairs]


class Allocations(TorchDispatchMode):
    """Follows the memory of all tensors made inside, without the scratch memory of kernels."""

    def __init__(self) -> None:
        super().__init__()
        self.held = self.peak = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        before = {_key(x) for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)}
        out = func(*args, **(kwargs or {}))
        for x in tree_leaves(out):
            if isinstance(x, Tensor) and _key(x) not in before:
                self._enter(x.untyped_storage())
        return out

    def _enter(self, storage: torch.UntypedStorage) -> None:
        size = storage.nbytes()
        self.held += size
        self.peak = max(self.peak, self.held)
        weakref.finalize(storage, self._leave, size)

    def _leave(self, size: int) -> None:
        self.held -= size


def _key(x: Tensor) -> int:
    return x.untyped_storage()._cdata
