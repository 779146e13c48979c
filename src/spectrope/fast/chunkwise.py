r"""Chunkwise linear attention: sums over keys of polynomials of inner products, in linear time.

For targets x_t, sources y_s and payloads z_s, `chunkwise_sums` computes

.. math:: Y_t = \sum_s T_{ts} P(\langle x_t, y_s\rangle)\, z_s
   \quad\text{and}\quad
   \nabla_{x_t} \langle W_t, Y_t\rangle
   = \sum_s T_{ts} P'(\langle x_t, y_s\rangle) \langle W_t, z_s\rangle y_s,

with :math:`T_{ts}` the weight of the lag, 0 where t does not see s. The forward pass of attention is the
first sum with queries as targets and keys as sources; the backward pass takes both, in both roles. Products
within a chunk are computed densely; earlier chunks enter through a state :math:`\sum_s \phi(y_s) z_s^\top`
in monomial features, which decays where the lag bias does.
"""

from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from spectrope.fast.lag_weights import LagDecay, LagWeights
from spectrope.fast.monomials import State, derivative, feature_count

Span = tuple[int, int]
CACHED_ENTRIES = 2**20  # Of the features at once: 4 MiB in float32.
LONGEST_CHUNK, SHORTEST_CHUNK = 384, 64


def chunk_length(features: int) -> int:
    """Tokens in a chunk: fewer, the more features each has."""
    fitting = CACHED_ENTRIES // features
    return min(LONGEST_CHUNK, max(SHORTEST_CHUNK, fitting // SHORTEST_CHUNK * SHORTEST_CHUNK))


def rows_at_once(features: int, tokens: int) -> int:
    """Rows of the batch that are computed together."""
    return max(1, CACHED_ENTRIES // (features * tokens))


@dataclass(frozen=True)
class Tokens:
    """Targets or sources, coordinates first; groups of queries share a key and its payload.

    Args:
        x: Vectors, with shape (b, d, g, n).
        z: Payloads of sources or cotangents of targets, with shape (b, e, g, n).
        start: Position of the first token, counted so that the last query is at the last key.
        queries: Whether these are queries rather than keys.
    """

    x: Float[Tensor, "b d g n"]
    z: Float[Tensor, "b e g n"]
    start: int
    queries: bool

    def rows(self, rows: slice) -> "Tokens":
        """Some rows of the batch."""
        return Tokens(self.x[rows], self.z[rows], self.start, self.queries)

    def within(self, interval: Span) -> slice:
        """Indices of the tokens whose positions are in an interval."""
        return slice(*(min(max(end - self.start, 0), self.x.shape[-1]) for end in interval))

    def cut(self, interval: Span) -> tuple[Float[Tensor, "b d m"], Float[Tensor, "b e m"]]:
        """Their vectors and payloads, groups side by side."""
        some = self.within(interval)
        return self.x[..., some].flatten(2), self.z[..., some].flatten(2)

    def positions(self, interval: Span) -> Tensor:
        """Their positions."""
        some = self.within(interval)
        return torch.arange(self.start + some.start, self.start + some.stop, device=self.x.device)


@dataclass(frozen=True)
class PolynomialWeights:
    r"""Attention weights before they are normalised: :math:`T_h(i - j)\,P(\langle q_i, k_j\rangle)`.

    Args:
        coefficients: Of P, the constant first.
        causal: Whether keys after a query have no weight.
        lags: The weights T, or None where all are 1.
    """

    coefficients: tuple[float, ...]
    causal: bool
    lags: LagWeights | None = None

    @property
    def degree(self) -> int:
        """The degree of P."""
        return len(self.coefficients) - 1

    @property
    def derivative(self) -> tuple[float, ...]:
        """Coefficients of P'."""
        return derivative(self.coefficients)


@dataclass
class Sums:
    """Sums Y, (b, e, g, n), and the gradient of the targets, (b, d, g, n), where asked for."""

    values: Tensor | None
    gradient: Tensor | None


def chunkwise_sums(
    weights: PolynomialWeights, targets: Tokens, sources: Tokens, *, values: bool, gradient: bool
) -> Sums:
    """The sums of the module's formula over all sources, for all targets.

    Args:
        weights: Of pairs of tokens.
        targets: Tokens x with cotangents W.
        sources: Tokens y with payloads z.
        values: Whether to compute the sums Y.
        gradient: Whether to compute their gradient in the targets.
    """
    batch, dim, groups, n = targets.x.shape
    out = Sums(
        targets.x.new_zeros(batch, sources.z.shape[1], groups, n) if values else None,
        torch.zeros_like(targets.x) if gradient else None,
    )
    features = feature_count(dim, weights.degree)
    chunk = chunk_length(features)
    size = rows_at_once(features, max(groups, sources.x.shape[2]) * chunk)
    for first in range(0, batch, size):
        rows = slice(first, min(first + size, batch))
        part = Sums(
            None if out.values is None else out.values[rows],
            None if out.gradient is None else out.gradient[rows],
        )
        _Scan(weights, targets.rows(rows), sources.rows(rows), part, first, chunk).run()
    return out


def dense_chunks(start: int, chunk: int) -> int:
    """Number of chunks next to a target's own whose pairs are computed densely, because lags below `start`
    can have any weight."""
    return max(0, -(-(start - 1) // chunk))


@dataclass
class _Scan:
    """Computes the sums of some rows of the batch, from `first_row` on, chunk after chunk."""

    weights: PolynomialWeights
    targets: Tokens
    sources: Tokens
    out: Sums
    first_row: int
    chunk: int
    _factors: dict[tuple[int, ...], Tensor | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        x, groups = self.targets.x, max(self.targets.x.shape[2], self.sources.x.shape[2])
        self.state = State(
            self.weights.coefficients, x[:, :, 0], self.sources.z.shape[1], groups * self.chunk
        )

    def run(self) -> None:
        end = max(tokens.start + tokens.x.shape[-1] for tokens in (self.targets, self.sources))
        intervals = [(a, min(a + self.chunk, end)) for a in range(0, end, self.chunk)]
        if self.weights.causal:
            self._scan(intervals, ascending=self.targets.queries, diagonal=True)
        elif self.weights.lags is None:
            self._sum_over_all(intervals)
        else:
            self._scan(intervals, ascending=True, diagonal=True)
            self._scan(intervals, ascending=False, diagonal=False)

    def _sum_over_all(self, intervals: list[Span]) -> None:
        """All targets see all sources."""
        for interval in intervals:
            self._update_state(interval, None)
        for interval in intervals:
            self._read_state(interval, None)

    def _scan(self, intervals: list[Span], *, ascending: bool, diagonal: bool) -> None:
        """Targets see the sources of the chunks behind theirs, and of their own chunk if `diagonal`."""
        order = intervals if ascending else intervals[::-1]
        decay = self._decay(ascending)
        dense = 0 if decay is None else dense_chunks(decay.start, self.chunk)
        self.state.clear()
        for here, interval in enumerate(order):
            if decay is not None:
                self.state.decay(decay.move(interval[0] if ascending else interval[1] - 1))
            if here > dense:
                self._update_state(order[here - dense - 1], decay)
                self._read_state(interval, decay)
            for behind in range(0 if diagonal else 1, min(dense, here) + 1):
                self._add_dense(interval, order[here - behind], masked=self.weights.causal and behind == 0)

    @property
    def _heads(self) -> Tensor:
        """The head of each row."""
        lags = self.weights.lags
        assert lags is not None
        rows = torch.arange(self.first_row, self.first_row + len(self.targets.x), device=lags.logs.device)
        return rows % len(lags.logs)

    def _decay(self, ascending: bool) -> LagDecay | None:
        """The decay of weights along a scan, where lags have weights."""
        lags = self.weights.lags
        if lags is None:
            return None
        tail = lags.past if ascending == self.targets.queries else lags.future
        return LagDecay(tail, self._heads, self.targets.x)

    def _update_state(self, interval: Span, decay: LagDecay | None) -> None:
        """Add the sources of an interval to the state."""
        y, z = self.sources.cut(interval)
        if y.shape[-1] > 0:
            if decay is not None:
                z = z * decay.of_sources(self.sources.positions(interval))
            self.state.update(y, z)

    def _read_state(self, interval: Span, decay: LagDecay | None) -> None:
        """Add what the targets of an interval see through the state."""
        x, w = self.targets.cut(interval)
        if x.shape[-1] == 0:
            return
        scale = None if decay is None else decay.level * decay.of_targets(self.targets.positions(interval))
        if self.out.values is not None:
            sums = self.state.read(x)
            self._add(self.out.values, interval, sums if scale is None else sums.mul_(scale))
        if self.out.gradient is not None:
            gradient = self.state.read_gradient(x, w if scale is None else w * scale)
            self._add(self.out.gradient, interval, gradient)

    def _add_dense(self, at: Span, seen: Span, *, masked: bool) -> None:
        """Add what the targets of one interval see of the sources of another, by dense products."""
        (x, w), (y, z) = self.targets.cut(at), self.sources.cut(seen)
        if x.shape[-1] == 0 or y.shape[-1] == 0:
            return
        products, factor = torch.bmm(y.mT, x), self._factor(at, seen, masked)
        if self.out.values is not None:
            kernel = self._weighted(_horner(self.weights.coefficients, products), factor)
            self._add(self.out.values, at, torch.bmm(z, kernel))
        if self.out.gradient is not None:
            slope = self._weighted(_horner(self.weights.derivative, products), factor)
            self._add(self.out.gradient, at, torch.bmm(y, slope.mul_(torch.bmm(z.mT, w))))

    def _weighted(self, kernel: Tensor, factor: Tensor | None) -> Tensor:
        """Weights of all pairs, sources by targets, times a factor that all groups share."""
        if factor is not None:
            groups, other = self.sources.x.shape[2], self.targets.x.shape[2]
            split = kernel.view(len(kernel), groups, factor.shape[1], other, factor.shape[2])
            split.mul_(factor[:, None, :, None])
        return kernel

    def _factor(self, at: Span, seen: Span, masked: bool) -> Tensor | None:
        """Weights of lags, 0 where masked, with shape (b or 1, sources, targets); None where all are 1."""
        if self.weights.lags is None and not masked:
            return None
        t, s = self.targets.within(at), self.sources.within(seen)
        offset = t.start + self.targets.start - s.start - self.sources.start
        key = offset, t.stop - t.start, s.stop - s.start, int(masked)
        if key not in self._factors:
            distance = self.targets.positions(at)[None, :] - self.sources.positions(seen)[:, None]
            self._factors[key] = self._new_factor(distance if self.targets.queries else -distance, masked)
        return self._factors[key]

    def _new_factor(self, lag: Tensor, masked: bool) -> Tensor:
        allowed = (lag >= 0)[None] if masked else torch.ones_like(lag, dtype=torch.bool)[None]
        if self.weights.lags is None:
            return allowed.to(self.targets.x.dtype)
        return (self.weights.lags.of_lags(lag, self._heads) * allowed).to(self.targets.x.dtype)

    def _add(self, out: Tensor, interval: Span, columns: Tensor) -> None:
        some = out[..., self.targets.within(interval)]
        some += columns.view(some.shape)


def _horner(coefficients: tuple[float, ...], x: Tensor) -> Tensor:
    """The polynomial of every entry, in new memory."""
    *lower, top = coefficients
    if not lower:
        return torch.full_like(x, top)
    out = torch.mul(x, top).add_(lower[-1])
    for coefficient in reversed(lower[:-1]):
        out.mul_(x).add_(coefficient)
    return out
