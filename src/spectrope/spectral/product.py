"""Logits as a product: sums and products of L = Q K^T, full or causal, without forming it."""

import math
from collections.abc import Iterator

import numpy as np
import torch
from jaxtyping import Complex, Float
from torch import Tensor

from spectrope.spectral.checks import check, factors, real_matrix, square
from spectrope.spectral.fourier import fast_complex_length, fft_into, ifft
from spectrope.spectral.operator import ToeplitzOperator

CHUNK, GROUP = 64, 8  # rows per chunk, chunks at a time
FEATURES = 4  # pairs that fill one cache line of complex128
TRANSFORMED = 2**15  # numbers at a time


def diagonal_sums(q: Tensor, k: Tensor) -> Float[Tensor, " lags"]:
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
    return _diagonal_sums(*factors(q, k))


def _diagonal_sums(q: Float[Tensor, "n d"], k: Float[Tensor, "n d"]) -> Float[Tensor, " lags"]:
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


def nearest_toeplitz(matrix: Tensor, causal: bool = False) -> ToeplitzOperator:
    r"""The Toeplitz matrix nearest in Frobenius norm: :math:`t_d` is the mean of diagonal d.

    It is the orthogonal projection, hence unique; with `causal` the projection of the lower triangle, on
    lags of 0 and more.

    Args:
        matrix: Real or complex, with shape (n, n).
        causal: Whether entries above the diagonal are to be read as absent.
    """
    matrix = square(matrix, "matrix")
    n = len(matrix)
    sums = matrix_diagonal_sums(matrix)
    return _mean_operator(sums, n, causal)


def nearest_toeplitz_product(q: Tensor, k: Tensor, causal: bool = False) -> ToeplitzOperator:
    """The Toeplitz matrix nearest to Q K^T, or to its lower triangle, without forming it.

    Args:
        q: Queries, with shape (n, d).
        k: Keys, with shape (n, d).
        causal: Whether query i sees keys j <= i alone.
    """
    return _mean_operator(diagonal_sums(q, k), len(q), causal)


def matrix_diagonal_sums(matrix: Tensor) -> Tensor:
    """Sums over the diagonals of a dense (n, n) matrix, from lag -(n-1) to n-1, with shape (2n-1,)."""
    n = len(matrix)
    i = torch.arange(n, device=matrix.device)
    lag = (i[:, None] - i + n - 1).flatten()
    return matrix.new_zeros(2 * n - 1).index_add(0, lag, matrix.flatten())


def _mean_operator(sums: Tensor, n: int, causal: bool) -> ToeplitzOperator:
    lag = torch.arange(1 - n, n, device=sums.device)
    means = sums / (n - lag.abs())
    return ToeplitzOperator(torch.where(lag >= 0, means, 0) if causal else means)


def logit_energy(q: Tensor, k: Tensor, causal: bool = False) -> float:
    r"""Squared Frobenius norm of :math:`QK^\top`, or of its lower triangle, in squared logit units.

    Full: :math:`\operatorname{tr}(Q^\top Q\,K^\top K)` in :math:`O(nd^2)`. Causal: the same for each chunk of
    queries with the Gram matrix of all keys before it, and the chunk's own triangle entry by entry.

    Args:
        q: Queries, with shape (n, d).
        k: Keys, with shape (n, d).
        causal: Whether query i sees keys j <= i alone.
    """
    return energy_and_row_sums(q, k, causal)[0]


def row_sums(q: Tensor, k: Tensor, causal: bool = False) -> Float[Tensor, " n"]:
    r"""Sums :math:`\sum_j \langle q_i, k_j\rangle` over the keys that each query sees, with shape (n,)."""
    q, k = factors(q, k)
    return torch.linalg.vecdot(q, _prefix_sums(k)) if causal else q @ k.sum(0)


def _prefix_sums(x: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    """Sums of the first rows; NumPy's are contiguous and ten times as fast as torch's on a CPU."""
    return torch.from_numpy(np.cumsum(x.numpy(), axis=0)) if x.device.type == "cpu" else x.cumsum(0)


def column_sums(q: Tensor, k: Tensor, causal: bool = False) -> Float[Tensor, " n"]:
    r"""Sums :math:`\sum_i \langle q_i, k_j\rangle` over the queries that see each key, with shape (n,)."""
    q, k = factors(q, k)
    return row_sums(k.flip(0), q.flip(0), causal).flip(0)


def energy_and_row_sums(q: Tensor, k: Tensor, causal: bool = False) -> tuple[float, Float[Tensor, " n"]]:
    """`logit_energy` and `row_sums` in one pass over the logits' triangle; arguments as there."""
    q, k = factors(q, k)
    if not causal:
        return ((q.T @ q) * (k.T @ k)).sum().item(), q @ k.sum(0)
    total, rows, key_sum = 0.0, [], torch.zeros_like(k[0])
    for queries, keys, before in past_grams(q, k):
        total += torch.linalg.vecdot(torch.matmul(queries.mT, queries), before, dim=-1).sum().item()
        own = torch.matmul(queries, keys.mT).tril_()
        key_sums = torch.cat([key_sum[None], keys.sum(1)]).cumsum_(0)
        rows.append((own.sum(2) + torch.matmul(queries, key_sums[:-1, :, None])[..., 0]).flatten())
        total += own.square_().sum().item()
        key_sum = key_sums[-1]
    return total, torch.cat(rows)[: len(q)]


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


def causal_matmul(q: Tensor, k: Tensor, x: Tensor, chunk: int = 128) -> Tensor:
    r"""tril(Q K^T) X without forming the matrix, in :math:`O(n(d + \text{chunk}))` per column.

    Args:
        q: Queries, with shape (n, d).
        k: Keys, with shape (n, d).
        x: Columns, with shape (n, c).
        chunk: Rows at a time; their own triangle is formed.

    Returns:
        With shape (n, c).
    """
    q, k = factors(q, k)
    x = real_matrix(x, "x")
    check(len(x) == len(q), f"x must have shape ({len(q)}, c); got {tuple(x.shape)}.")
    state, out = q.new_zeros(q.shape[1], x.shape[1]), torch.empty_like(x)
    for rows in (slice(start, start + chunk) for start in range(0, len(q), chunk)):
        own = torch.tril(q[rows] @ k[rows].T) @ x[rows]
        out[rows] = own.addmm_(q[rows], state)
        state = state.addmm_(k[rows].T, x[rows])
    return out


def row_centred(
    q: Tensor, k: Tensor, causal: bool = False
) -> tuple[Float[Tensor, "n e"], Float[Tensor, "n e"]]:
    r"""Factors of the logits minus their row means over the keys seen: the softmax gauge, fixed.

    Softmax ignores :math:`L \to L + r 1^\top`, spectra do not: 15 may become 195. Full logits: subtract the
    mean key, which leaves the width d. Causal ones: append the feature :math:`(-\bar L_i, 1)`, width d + 1,
    scaled such that its norms are in the ratio of those of q and k.

    Args:
        q: Queries, with shape (n, d).
        k: Keys, with shape (n, d).
        causal: Whether query i sees keys j <= i alone.
    """
    q, k = factors(q, k)
    k = k - k.mean(0)
    if not causal:
        return q, k
    seen = torch.arange(1, len(q) + 1, dtype=q.dtype, device=q.device)
    means = row_sums(q, k, causal=True) / seen
    size = (means.norm() / len(q) ** 0.5 * (k.norm() / q.norm())).sqrt()
    size = torch.where(size.isfinite() & (size > 0), size, 1.0)
    return torch.cat([q, -means[:, None] / size], 1), torch.cat([k, size.expand_as(means)[:, None]], 1)


def positional_factors(
    q_rotated: Tensor, k_rotated: Tensor, q: Tensor, k: Tensor
) -> tuple[Float[Tensor, "n e"], Float[Tensor, "n e"]]:
    r"""Factors of what rotation changes:
    :math:`\tilde Q\tilde K^\top - QK^\top = [\tilde Q, Q][\tilde K, -K]^\top`.

    All functions of this module apply to the result, of width 2d.

    Args:
        q_rotated: Queries after rotation, with shape (n, d).
        k_rotated: Keys after rotation, with shape (n, d).
        q: Queries before it, with shape (n, d).
        k: Keys before it, with shape (n, d).
    """
    (q_rotated, k_rotated), (q, k) = factors(q_rotated, k_rotated), factors(q, k)
    return torch.cat([q_rotated, q], 1), torch.cat([k_rotated, -k], 1)
