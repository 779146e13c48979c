"""Logits as a product: sums over L = Q K^T, full or causal, without forming it."""

import math
from collections.abc import Iterator

import numpy as np
import torch
from jaxtyping import Complex, Float
from torch import Tensor

from spectrope.spectral.checks import factors
from spectrope.spectral.fourier import fast_complex_length, fft_into, ifft

CHUNK, GROUP = 64, 8  # rows per chunk, chunks at a time
ROWS = 2**14  # of prefix sums at a time
FEATURES = 4  # pairs that fill one cache line of complex128
TRANSFORMED = 2**15  # numbers at a time


def diagonal_sums_of_product(q: Tensor, k: Tensor) -> Float[Tensor, " lags"]:
    r"""Sums :math:`s_d = \sum_{i-j=d} \langle q_i, k_j\rangle` over all diagonals, by FFT.

    The transform of a cross-correlation is a product, and a sum over features commutes with the inverse. Two
    features make one complex sequence, the real part of whose correlation is their sum. The 2n points that
    keep ends from wrapping around are taken n at a time, so that no zeros are transformed: plain sequences
    give :math:`s_d + s_{d-n}`, those on the carrier :math:`e^{i\pi j/n}` give :math:`s_d - s_{d-n}`. In all
    2d transforms of n points forth and two back, :math:`O(d\,n\log n)`. Errors are of the order of
    :math:`10^{-16} \|q\| \|k\|`, whatever the size of the sum itself.

    Args:
        q: Queries, with shape (n, d).
        k: Keys, with shape (n, d).

    Returns:
        :math:`s_{-(n-1)}, \dots, s_{n-1}` in logit units, with shape (2n-1,).

    Raises:
        ConfigError: If the shapes differ, or an entry is not finite.
    """
    q, k = factors(q, k)
    n, size = len(q), fast_complex_length(len(q))
    carrier = torch.exp(1j * math.pi / size * torch.arange(size, dtype=torch.float64, device=q.device))
    plain, carried = torch.zeros_like(carrier), torch.zeros_like(carrier)
    for pairs, room in _paired_features(q, k, size):
        plain += _cross_spectrum(pairs, room)
        carried += _cross_spectrum(pairs.mul_(carrier), room)
    cyclic, skew = ifft(plain, size).real, (ifft(carried, size) / carrier).real
    past, future = (cyclic + skew) / 2, (cyclic - skew) / 2
    return torch.cat([future[size - n + 1 :], past[:n]])


def _cross_spectrum(
    pairs: Complex[Tensor, "2 f size"], room: Complex[Tensor, "2 f size"]
) -> Complex[Tensor, " size"]:
    left, right = fft_into(pairs, room)
    return left.mul_(right.conj_physical_()).sum(0)


def _paired_features(
    q: Float[Tensor, "n d"], k: Float[Tensor, "n d"], size: int
) -> Iterator[tuple[Complex[Tensor, "2 f size"], Complex[Tensor, "2 f size"]]]:
    """Pairs of features of both sides as rows, zeros after them, and room for transforms; all reused."""
    n, sides = len(q), [_as_pairs(x) for x in (q, k)]
    at_once = max(FEATURES, TRANSFORMED // size)
    buffers = sides[0].new_zeros(2, 2, min(at_once, sides[0].shape[1]), size)
    for blocks in zip(*(side.split(at_once, dim=1) for side in sides), strict=True):
        pairs, room = buffers[:, :, : blocks[0].shape[1]]
        for rows, block in zip(pairs, blocks, strict=True):
            rows[:, :n] = block.T
        yield pairs, room


def _as_pairs(x: Float[Tensor, "n d"]) -> Complex[Tensor, "n m"]:
    """Neighbouring features as complex numbers, in the memory of x where it is laid out for that."""
    x = torch.nn.functional.pad(x, (0, 1)) if x.shape[1] % 2 else x.contiguous()
    x = x.clone() if x.storage_offset() % 2 else x
    return torch.view_as_complex(x.view(len(x), -1, 2))


def logit_energy(q: Tensor, k: Tensor, causal: bool = False) -> Float[Tensor, ""]:
    r"""Squared Frobenius norm of :math:`QK^\top`, or of its lower triangle, in squared logit units.

    Full: :math:`\operatorname{tr}(Q^\top Q\,K^\top K)` in :math:`O(nd^2)`. Causal: the same for each chunk of
    queries with the Gram matrix of all keys before it, and the chunk's own triangle entry by entry.

    Args:
        q: Queries, with shape (n, d).
        k: Keys, with shape (n, d).
        causal: Whether query i attends only to keys j <= i.
    """
    q, k = factors(q, k)
    if not causal:
        return ((q.T @ q) * (k.T @ k)).sum()
    total = q.new_zeros(())
    for queries, keys, before in past_grams(q, k):
        total += torch.linalg.vecdot(torch.matmul(queries.mT, queries), before, dim=-1).sum()
        total += torch.matmul(queries, keys.mT).tril_().square_().sum()
    return total


def causal_row_means(q: Float[Tensor, "n d"], k: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
    r"""Means :math:`\frac1{i+1}\sum_{j\le i} \langle q_i, k_j\rangle` over the keys that each query sees."""
    means, total = [], torch.zeros_like(k[0])
    for queries, keys in zip(q.split(ROWS), k.split(ROWS), strict=True):
        on_cpu = keys.device.type == "cpu"  # Where NumPy's prefix sums are ten times as fast as torch's.
        sums = torch.from_numpy(np.cumsum(keys.numpy(), axis=0)) if on_cpu else keys.cumsum(0)
        means.append(torch.linalg.vecdot(queries, sums.add_(total)))
        total = sums[-1]
    return torch.cat(means) / torch.arange(1, len(q) + 1, device=q.device)


def past_grams(
    q: Float[Tensor, "n d"], k: Float[Tensor, "n d"]
) -> Iterator[tuple[Float[Tensor, "b c d"], Float[Tensor, "b c d"], Float[Tensor, "b d d"]]]:
    """Chunks of queries, the same chunks of keys, and the Gram matrix K^T K of all keys before each chunk.

    The last chunk is filled up with zeros. `GROUP` chunks come at a time, so that memory stays bounded.
    """
    n, d = q.shape
    before = q.new_zeros(1, d, d)
    for start in range(0, n, CHUNK * GROUP):
        queries, keys = (_chunked(x[start : start + CHUNK * GROUP]) for x in (q, k))
        grams = torch.cat([before, torch.matmul(keys.mT, keys)]).cumsum_(0)
        yield queries, keys, grams[:-1]
        before = grams[-1:]


def _chunked(x: Float[Tensor, "n d"]) -> Float[Tensor, "b c d"]:
    missing = -len(x) % CHUNK
    return torch.nn.functional.pad(x, (0, 0, 0, missing)).view(-1, CHUNK, x.shape[1])
