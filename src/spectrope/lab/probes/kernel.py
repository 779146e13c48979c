"""The Toeplitz matrices of an encoding itself, independent of content."""

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from spectrope.core import UnsupportedError
from spectrope.encodings import Encoding, Form
from spectrope.lab.probes.isotropic import input_lags, product_lags
from spectrope.lab.probes.rotation import encoding_of_head, steady_rotation
from spectrope.spectral import (
    SymbolRange,
    ToeplitzOperator,
    extremal_eigenvalues,
    rope_kernel,
    rope_kernel_eigenvalues,
    symbol_range,
)


@dataclass(frozen=True, eq=False)
class EncodingKernel:
    r"""A real symmetric Toeplitz matrix of one or several heads.

    Args:
        heads: Numbers of the heads, from 0.
        kind: "bias": :math:`b_h(i-j)` in logit units, lags of the past extended evenly to the future where
            attention is causal, else the symmetric part. "rotation": the mean
            :math:`\frac1m\sum_t\cos((i-j)\theta_t)` over frequencies, what rotation makes of equal content,
            without the gain of schedules such as YaRN's, which multiplies it by its square.
            "product": the same for other encodings of queries and keys, the mean logit of equal content in
            random directions over that without positions, such as :math:`\alpha G_e + J`. "input": the
            product of two input terms over that of one with itself, the logits of an isotropic form.
        operator: The matrix.
        frequencies: θ in radians per position, with shape (m,), of a rotation; else None.
    """

    heads: tuple[int, ...]
    kind: Literal["bias", "rotation", "product", "input"]
    operator: ToeplitzOperator
    frequencies: Float[Tensor, " m"] | None = None

    @property
    def values(self) -> Float[Tensor, " n"]:
        """Entries at lags 0 to n - 1."""
        return self.operator.lags[self.operator.n - 1 :]


@dataclass(frozen=True, eq=False)
class KernelSpectrum:
    """Both ends of a kernel's spectrum, in its units.

    Args:
        smallest_estimate: Least eigenvalue.
        largest_estimate: Greatest eigenvalue.
        symbol: Certified bracket around both, from the range of the symbol.
    """

    smallest_estimate: float
    largest_estimate: float
    symbol: SymbolRange


@torch.no_grad()
def encoding_kernels(
    encoding: Encoding, n: int, n_heads: int, width: int, causal: bool
) -> list[EncodingKernel]:
    """The kernels of an encoding at n positions.

    Args:
        encoding: Of one layer.
        n: Number of positions.
        n_heads: Heads of the layer.
        width: Of queries and keys.
        causal: Whether attention is causal.

    Raises:
        UnsupportedError: If the encoding has none, with the reason, or its table is shorter than n.
    """
    encoding = copy.deepcopy(encoding).cpu().double()
    kernels = [*_biases(encoding, n, n_heads, causal), *_rotations(encoding, n, n_heads, width)]
    reasons: list[str] = []
    for make in (_products, _inputs):
        for heads, lags in make(encoding, n, n_heads, width, kernels):
            if isinstance(lags, str):
                reasons.append(lags)
            else:
                kind = "product" if make is _products else "input"
                kernels.append(EncodingKernel(heads, kind, ToeplitzOperator.hermitian(lags)))
    if not kernels:
        raise UnsupportedError(
            f"{type(encoding).__name__} has no Toeplitz matrix of its own: "
            f"{'; '.join(dict.fromkeys(reasons))}. Measure the heads of a trained run instead."
        )
    return kernels


def kernel_spectrum(kernel: EncodingKernel) -> KernelSpectrum:
    """Extreme eigenvalues with their certificate; those of a rotation from its small Gram matrices."""
    if kernel.frequencies is None:
        ends = extremal_eigenvalues(kernel.operator)
        return KernelSpectrum(ends.smallest.value_estimate, ends.largest.value_estimate, ends.symbol)
    symbol = symbol_range(kernel.operator)
    symbol = replace(symbol, lower_bound=max(symbol.lower_bound, 0.0))  # a mean of Gram matrices
    nonzero = rope_kernel_eigenvalues(kernel.frequencies, kernel.operator.n)
    full = len(nonzero) == kernel.operator.n
    return KernelSpectrum(nonzero[-1].item() if full else 0.0, nonzero[0].item(), symbol)


def _biases(encoding: Encoding, n: int, n_heads: int, causal: bool) -> Iterator[EncodingKernel]:
    heads = [h for h in range(n_heads) if encoding_of_head(encoding, h).form is Form.DOT_PLUS_LAG]
    if not heads:
        return
    device = next((tensor.device for tensor in (*encoding.parameters(), *encoding.buffers())), None)
    lag = torch.arange(0 if causal else 1 - n, n, dtype=torch.float64, device=device)
    bias = encoding.lag_bias(lag).to("cpu", torch.float64)
    for head in heads:
        values = bias[:, head]
        even = ToeplitzOperator.hermitian(values) if causal else ToeplitzOperator(values).hermitian_part()
        yield EncodingKernel((head,), "bias", even)


def _rotations(encoding: Encoding, n: int, n_heads: int, width: int) -> Iterator[EncodingKernel]:
    shared: dict[Encoding, list[int]] = {}
    for head in range(n_heads):
        shared.setdefault(encoding_of_head(encoding, head), []).append(head)
    for head_encoding, heads in shared.items():
        rotation = steady_rotation(head_encoding, width)
        if rotation is not None:
            theta = rotation.frequencies.double()
            yield EncodingKernel(tuple(heads), "rotation", rope_kernel(theta, n), theta)


HeadLags = Iterator[tuple[tuple[int, ...], Float[Tensor, " n"] | str]]


def _products(
    encoding: Encoding, n: int, n_heads: int, width: int, known: Sequence[EncodingKernel]
) -> HeadLags:
    """Products of the heads without a steady rotation."""
    steady = {head for kernel in known if kernel.kind == "rotation" for head in kernel.heads}
    shared: dict[Encoding, list[int]] = {}
    for head in sorted(set(range(n_heads)) - steady):
        shared.setdefault(encoding_of_head(encoding, head), []).append(head)
    for one, heads in shared.items():
        yield tuple(heads), product_lags(one, n, width)


def _inputs(
    encoding: Encoding, n: int, n_heads: int, width: int, known: Sequence[EncodingKernel]
) -> HeadLags:
    """The product of input terms, the same for all heads."""
    lags = input_lags(encoding, n)
    if lags is not None:
        yield tuple(range(n_heads)), lags
