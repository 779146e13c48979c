r"""Sums of polynomials of inner products over the tokens before each token, in time linear in their number.

For targets x_t, sources y_s and payloads z_s, a sweep computes

.. math:: Y_t = \sum_{s \text{ before } t} T_{ts} P(\langle x_t, y_s\rangle)\, z_s
   \quad\text{and}\quad
   \nabla_{x_t} \langle W_t, Y_t\rangle
   = \sum_s T_{ts} P'(\langle x_t, y_s\rangle) \langle W_t, z_s\rangle y_s.

Attention needs no more: queries are the targets of a sweep over keys, and keys those of the sweep back over
queries. Within a chunk products are taken one by one; what lies further back is a state
:math:`\sum_s \phi(y_s) z_s^\top` in monomial features, which decays where the lag bias does.
"""

from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from spectrope.fast.features import derivative, feature_count
from spectrope.fast.lag_weights import LagWeights, Tail
from spectrope.fast.state import State

Interval = tuple[int, int]
CACHED_ENTRIES = 2**20  # Of the features at once: 4 MiB in float32.
LONGEST_CHUNK, SHORTEST_CHUNK = 384, 64


@dataclass(frozen=True)
class Tokens:
    """One side of a sweep, features first; groups of queries share a key and its payload.

    Args:
        x: Vectors, with shape (b, d, g, n).
        z: Payloads, or cotangents where the side is a target, with shape (b, e, g, n).
        start: Place of the first token on the common line of places.
        queries: Whether these are queries.
    """

    x: Float[Tensor, "b d g n"]
    z: Float[Tensor, "b e g n"]
    start: int
    queries: bool

    def rows(self, rows: slice) -> "Tokens":
        """Some of the batch."""
        return Tokens(self.x[rows], self.z[rows], self.start, self.queries)

    def within(self, interval: Interval) -> slice:
        """Indices of the tokens whose places are in an interval."""
        return slice(*(min(max(end - self.start, 0), self.x.shape[-1]) for end in interval))

    def cut(self, interval: Interval) -> tuple[Float[Tensor, "b d m"], Float[Tensor, "b e m"]]:
        """Their vectors and payloads, groups side by side."""
        some = self.within(interval)
        return self.x[..., some].flatten(2), self.z[..., some].flatten(2)

    def places(self, interval: Interval) -> Tensor:
        """Their places."""
        some = self.within(interval)
        return torch.arange(self.start + some.start, self.start + some.stop, device=self.x.device)


@dataclass(frozen=True)
class Rule:
    """What is summed: the polynomial, whether the past alone, and the weights of lags.

    Args:
        coefficients: Of P, the constant first.
        causal: Whether a query sees the keys at its own place and before alone.
        lags: Weights of lags, or None where all are 1.
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

    def chunk(self, dim: int) -> int:
        """Tokens in a chunk: fewer, the more features each has."""
        fitting = CACHED_ENTRIES // feature_count(dim, self.degree)
        return min(LONGEST_CHUNK, max(SHORTEST_CHUNK, fitting // SHORTEST_CHUNK * SHORTEST_CHUNK))


@dataclass
class Result:
    """What a sweep returns: sums (b, e, g, n), and the gradient of the targets, (b, d, g, n)."""

    values: Tensor | None
    gradient: Tensor | None


def sweep(rule: Rule, targets: Tokens, sources: Tokens, *, values: bool, gradient: bool) -> Result:
    """Both sums of the module's formula, as asked for, for all targets.

    Args:
        rule: What is summed.
        targets: The side that sees; its z are the cotangents W.
        sources: The side that is seen; its z are the payloads.
        values: Whether the sums are wanted.
        gradient: Whether their gradient in the targets is.
    """
    batch, dim, groups, n = targets.x.shape
    out = Result(
        targets.x.new_zeros(batch, sources.z.shape[1], groups, n) if values else None,
        torch.zeros_like(targets.x) if gradient else None,
    )
    chunk = rule.chunk(dim)
    wide = max(groups, sources.x.shape[2]) * chunk
    size = max(1, CACHED_ENTRIES // (feature_count(dim, rule.degree) * wide))
    for first in range(0, batch, size):
        rows = slice(first, min(first + size, batch))
        part = Result(
            None if out.values is None else out.values[rows],
            None if out.gradient is None else out.gradient[rows],
        )
        _Sweep(rule, targets.rows(rows), sources.rows(rows), part, first, chunk).run()
    return out


class _Decay:
    """How weights fall with the distance from the edge at which a sweep enters a chunk.

    Args:
        tail: Rates and levels of all heads.
        heads: The head of each row.
        like: Gives the dtype.
    """

    def __init__(self, tail: Tail, heads: Tensor, like: Tensor) -> None:
        self.start, self.dtype, self.edge = tail.start, like.dtype, 0
        self._rate = tail.rate[heads][:, None, None]
        self.level = tail.level[heads][:, None, None].exp().to(like.dtype)

    def move(self, edge: int) -> Tensor:
        """Go on to another edge; what a state that refers to the last one is to be multiplied by."""
        passed, self.edge = abs(edge - self.edge), edge
        return (-self._rate * passed).exp().to(self.dtype)

    def of_targets(self, places: Tensor) -> Float[Tensor, "b 1 m"]:
        """Weights of places from the edge on, the level left out."""
        return (-self._rate * (places - self.edge).abs()).exp().to(self.dtype)

    def of_sources(self, places: Tensor) -> Float[Tensor, "b 1 m"]:
        """Weights of places behind the edge, none of which is nearer than the tail's start."""
        return (-self._rate * ((places - self.edge).abs() - self.start)).exp().to(self.dtype)


@dataclass
class _Sweep:
    """A sweep over some rows of the batch, from `first_row` on."""

    rule: Rule
    targets: Tokens
    sources: Tokens
    out: Result
    first_row: int
    chunk: int
    _factors: dict[tuple[int, ...], Tensor | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        x, groups = self.targets.x, max(self.targets.x.shape[2], self.sources.x.shape[2])
        self.state = State(self.rule.coefficients, x[:, :, 0], self.sources.z.shape[1], groups * self.chunk)

    def run(self) -> None:
        end = max(tokens.start + tokens.x.shape[-1] for tokens in (self.targets, self.sources))
        intervals = [(a, min(a + self.chunk, end)) for a in range(0, end, self.chunk)]
        if self.rule.causal:
            self._scan(intervals, ascending=self.targets.queries, diagonal=True)
        elif self.rule.lags is None:
            self._pool(intervals)
        else:
            self._scan(intervals, ascending=True, diagonal=True)
            self._scan(intervals, ascending=False, diagonal=False)

    def _pool(self, intervals: list[Interval]) -> None:
        """All targets see all sources."""
        for interval in intervals:
            self._absorb(interval, None)
        for interval in intervals:
            self._far(interval, None)

    def _scan(self, intervals: list[Interval], *, ascending: bool, diagonal: bool) -> None:
        """Targets see the sources of chunks behind theirs, and of their own chunk if `diagonal`."""
        order = intervals if ascending else intervals[::-1]
        decay = self._decay(ascending)
        dense = 0 if decay is None else max(0, -(-(decay.start - 1) // self.chunk))
        self.state.clear()
        for here, interval in enumerate(order):
            if decay is not None:
                self.state.fade(decay.move(interval[0] if ascending else interval[1] - 1))
            if here > dense:
                self._absorb(order[here - dense - 1], decay)
                self._far(interval, decay)
            for behind in range(0 if diagonal else 1, min(dense, here) + 1):
                self._near(interval, order[here - behind], masked=self.rule.causal and behind == 0)

    @property
    def _heads(self) -> Tensor:
        """The head of each row."""
        lags = self.rule.lags
        assert lags is not None
        rows = torch.arange(self.first_row, self.first_row + len(self.targets.x), device=lags.logs.device)
        return rows % len(lags.logs)

    def _decay(self, ascending: bool) -> _Decay | None:
        """How weights fall along a sweep, if they do."""
        lags = self.rule.lags
        if lags is None:
            return None
        tail = lags.past if ascending == self.targets.queries else lags.future
        return _Decay(tail, self._heads, self.targets.x)

    def _absorb(self, interval: Interval, decay: _Decay | None) -> None:
        """Add the sources of an interval to the state."""
        y, z = self.sources.cut(interval)
        if y.shape[-1] > 0:
            if decay is not None:
                z = z * decay.of_sources(self.sources.places(interval))
            self.state.absorb(y, z)

    def _far(self, interval: Interval, decay: _Decay | None) -> None:
        """Let the targets of an interval see the state."""
        x, w = self.targets.cut(interval)
        if x.shape[-1] == 0:
            return
        scale = None if decay is None else decay.level * decay.of_targets(self.targets.places(interval))
        if self.out.values is not None:
            sums = self.state.values(x)
            self._add(self.out.values, interval, sums if scale is None else sums.mul_(scale))
        if self.out.gradient is not None:
            self._add(self.out.gradient, interval, self.state.gradient(x, w if scale is None else w * scale))

    def _near(self, at: Interval, seen: Interval, *, masked: bool) -> None:
        """Let the targets of one interval see the sources of another, one by one."""
        (x, w), (y, z) = self.targets.cut(at), self.sources.cut(seen)
        if x.shape[-1] == 0 or y.shape[-1] == 0:
            return
        products, factor = torch.bmm(y.mT, x), self._factor(at, seen, masked)
        if self.out.values is not None:
            kernel = self._weighted(_horner(self.rule.coefficients, products), factor)
            self._add(self.out.values, at, torch.bmm(z, kernel))
        if self.out.gradient is not None:
            slope = self._weighted(_horner(self.rule.derivative, products), factor)
            self._add(self.out.gradient, at, torch.bmm(y, slope.mul_(torch.bmm(z.mT, w))))

    def _weighted(self, kernel: Tensor, factor: Tensor | None) -> Tensor:
        """A kernel, sources by targets, times what all groups share."""
        if factor is not None:
            groups, other = self.sources.x.shape[2], self.targets.x.shape[2]
            split = kernel.view(len(kernel), groups, factor.shape[1], other, factor.shape[2])
            split.mul_(factor[:, None, :, None])
        return kernel

    def _factor(self, at: Interval, seen: Interval, masked: bool) -> Tensor | None:
        """Weights of the lags between two intervals, 0 where masked: (b or 1, sources, targets), or None."""
        if self.rule.lags is None and not masked:
            return None
        t, s = self.targets.within(at), self.sources.within(seen)
        offset = t.start + self.targets.start - s.start - self.sources.start
        key = offset, t.stop - t.start, s.stop - s.start, int(masked)
        if key not in self._factors:
            distance = self.targets.places(at)[None, :] - self.sources.places(seen)[:, None]
            self._factors[key] = self._new_factor(distance if self.targets.queries else -distance, masked)
        return self._factors[key]

    def _new_factor(self, lag: Tensor, masked: bool) -> Tensor:
        allowed = (lag >= 0)[None] if masked else torch.ones_like(lag, dtype=torch.bool)[None]
        if self.rule.lags is None:
            return allowed.to(self.targets.x.dtype)
        return (self.rule.lags.of_lags(lag, self._heads) * allowed).to(self.targets.x.dtype)

    def _add(self, out: Tensor, interval: Interval, columns: Tensor) -> None:
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
