"""Classify additive biases: linear in the distance, a table by lag, or other."""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from spectrope.checkpoints.adapters import Call
from spectrope.encodings import t5_bucket

NONLINEAR = 1e-4  # Share of a linear bias's energy that may depart from a line.
QUERIES = 256  # At most so many give the factor on dot products.
FEW = 16  # One in so many queries decides whether a line is worth fitting to all.
LOST = 150  # Roundings of the largest logit up to which biases are not told from other functions.
NEGLIGIBLE = 1e-9  # Share of the largest energy of a head that is as good as none.
N_BUCKETS, MAX_DISTANCES = (8, 16, 32, 64, 128), (32, 64, 128, 256, 512)


@dataclass(frozen=True)
class Buckets:
    """T5's buckets of the lag."""

    bidirectional: bool
    n_buckets: int
    max_distance: int

    @property
    def has_scale(self) -> bool:
        """Whether the maximal distance lies beyond the lags with a bucket each, so that others have one."""
        return self.max_distance > self.n_buckets // (4 if self.bidirectional else 2)

    def of(self, lag: Int[Tensor, " n"]) -> Int[Tensor, " n"]:
        """Bucket of each lag."""
        return t5_bucket(
            lag,
            bidirectional=self.bidirectional,
            n_buckets=self.n_buckets,
            max_distance=self.max_distance,
        )

    def __str__(self) -> str:
        way = "both ways" if self.bidirectional else "past only"
        return f"{self.n_buckets} buckets {way} up to {self.max_distance}"


def split_logits(call: Call) -> tuple[float, Float[Tensor, "h i j"] | None]:
    r"""The factor s and the bias :math:`\beta` in :math:`L = s\,\langle q, k\rangle + \beta`.

    Where the kernel shows logits alone, two contents p and p' give the factor, as the bias is the same:
    :math:`s = \langle L - L', P - P'\rangle_w / \|P - P'\|_w^2` over the allowed pairs. A weight
    :math:`w = 1 / (1 + L^2 / \overline{(P - P')^2})` leaves out logits in which a large bias, rounded in low
    precision, hides the product.

    Args:
        call: A kernel's call whose batch holds at least two contents.
    """
    if call.logits is None:
        shape = (*call.q.shape[1:3], call.k.shape[2])
        return call.scale or 1.0, None if call.bias is None else call.bias[0].expand(shape)
    heads = range(call.q.shape[1])
    met, energy = (sum(sums) for sums in zip(*(_met(call, head) for head in heads), strict=True))
    scale = met / energy
    return scale, torch.stack([_beside_products(call, head, scale) for head in heads])


def _met(call: Call, head: int) -> tuple[float, float]:
    """Weighted sums of one head: differences of logits between two contents times those of products, and the
    squares of these."""
    assert call.logits is not None
    some = slice(None, None, 1 + call.q.shape[2] // QUERIES)
    both, hidden = (call.products_of(head)[:, some], call.logits[:, head, some]), call.hidden(head)[some]
    p, o = ((x[1].double() - x[0].double()).masked_fill(hidden, 0.0) for x in both)
    size = call.logits[0, head, some].double().masked_fill(hidden, 0.0).square()
    w = 1 / (1 + size / p.square().mean().clamp(min=1e-300))
    return (w * p * o).sum().item(), (w * p.square()).sum().item()


def _beside_products(call: Call, head: int, scale: float) -> Float[Tensor, "i j"]:
    """The bias of one head, kept as precisely as its logits are known."""
    assert call.logits is not None
    logits = call.logits[0, head]
    beside = logits.double() - scale * call.products_of(head)[0].double()
    kept = torch.promote_types(logits.dtype, torch.float32)
    return beside.masked_fill_(call.hidden(head), 0.0).to(kept)


def depends_on_content(call: Call, scale: float, noise: float) -> bool:
    """Whether logits less scaled products differ between contents in more than a constant per query and head.

    Args:
        call: Whose batch holds at least two contents.
        scale: Factor on products.
        noise: Relative rounding error of the model's arithmetic.
    """
    if call.logits is None:
        return False
    logits, products = call.logits[:2].double(), call.products()[:2].double()
    allowed = call.allowed[0, :1]
    first, second = (row_centred(x, allowed) for x in logits - scale * products)
    largest = logits.masked_fill(~allowed, 0.0).abs().max()
    return bool((first - second).abs().max() > 50 * noise * largest)


def row_centred(x: Float[Tensor, "h i j"], allowed: Bool[Tensor, "#h i j"]) -> Float[Tensor, "h i j"]:
    """x minus its mean over the keys that each query sees, zero elsewhere: what softmax does not ignore."""
    x = x.masked_fill(~allowed, 0.0)
    return (x - x.sum(-1, keepdim=True) / allowed.sum(-1, keepdim=True)).masked_fill(~allowed, 0.0)


def lags(rows: int, columns: int) -> Int[Tensor, "i j"]:
    """Query position minus key position."""
    return torch.arange(rows)[:, None] - torch.arange(columns)[None, :]


def linear_slopes(
    bias: Float[Tensor, "h i j"], allowed: Bool[Tensor, "#h i j"]
) -> Float[Tensor, " h"] | None:
    """Logit units lost per position of distance, for each head; None unless all heads are linear.

    A bias of the key's position, one of the distance under a causal mask, is judged by the past alone.

    Args:
        bias: As the kernel adds it.
        allowed: Which keys each query sees.
    """
    past = allowed.tril()
    for seen in (allowed,) if torch.equal(past, allowed) else (allowed, past):
        few = slice((bias.shape[1] - 1) % FEW, None, FEW)  # The last query among them.
        if _slopes(bias, seen, few, 10 * NONLINEAR) is None:  # which costs little
            continue
        if (slopes := _slopes(bias, seen)) is not None:
            return slopes
    return None


def _slopes(
    bias: Float[Tensor, "h i j"],
    allowed: Bool[Tensor, "#h i j"],
    queries: slice = slice(None),
    within: float = NONLINEAR,
) -> Float[Tensor, " h"] | None:
    """The same under one mask, by some of the queries."""
    distance = lags(*bias.shape[1:]).abs().double().to(bias.device)[queries]
    bias, allowed = bias[:, queries], allowed[:, queries]
    line = row_centred(distance[None], allowed[:1])
    pairs = zip(bias, allowed.expand_as(bias), strict=True)
    lines = [_line(row_centred(one[None].double(), seen[None]), line) for one, seen in pairs]
    slopes, missed, energies = (torch.stack(column) for column in zip(*lines, strict=True))
    energies = energies.clamp(min=NEGLIGIBLE * energies.max())  # of heads without a bias, rounding is left
    return slopes if bool((missed <= within * energies).all()) else None


def _line(
    bias: Float[Tensor, "1 i j"], line: Float[Tensor, "1 i j"]
) -> tuple[Float[Tensor, ""], Float[Tensor, ""], Float[Tensor, ""]]:
    """Slope of one head's bias, the energy that departs from the line, and all of it."""
    slope = -(bias * line).sum() / line.square().sum()
    return slope, (bias + slope * line).square().sum(), bias.square().sum()


def drowned(call: Call, sizes: Sequence[float], noise: float) -> list[int]:
    """Heads whose biases are lost in the rounding of their logits, where these hold them.

    Args:
        call: Of the layer.
        sizes: By how much the biases of each head differ at most, as declared.
        noise: Relative rounding error of the model's arithmetic.
    """
    if call.logits is None:
        return []
    lost = []
    for head, size in enumerate(sizes):
        largest = call.logits[:, head].double().masked_fill(call.hidden(head), 0.0).abs().max().item()
        if size <= LOST * noise * largest:
            lost.append(head)
    return lost


def lag_table(
    bias: Float[Tensor, "h i j"],
    allowed: Bool[Tensor, "#h i j"],
    noise: float,
    lag: Int[Tensor, "i j"] | None = None,
) -> tuple[Int[Tensor, " n"], Float[Tensor, "h n"]] | None:
    """Lags that occur and the bias of each, per head; None where equal lags get unequal biases.

    Args:
        bias: As the kernel adds it, not centred.
        allowed: Which keys each query sees.
        noise: Relative rounding error of the model's arithmetic.
        lag: Of each query and key; None where both count the same tokens.
    """
    if lag is not None:
        return _grouped(bias.double(), allowed, noise, lag.to(bias.device))
    (n, m), dtype = bias.shape[1:], torch.promote_types(bias.dtype, torch.float32)
    hidden = ~allowed[0].expand(n, m)
    seen = _diagonals((~hidden).to(dtype))
    counts = seen.sum(0)
    table, spreads, sizes = [], [], []
    for head in bias:
        values = _diagonals(head.to(dtype).masked_fill(hidden, 0.0))
        table.append(values.sum(0, dtype=torch.float64) / counts.clamp(min=1))
        sizes.append(values.abs().max())
        spreads.append(values.sub_(table[-1].to(dtype)).mul_(seen).abs().max())
    all_lags, occurs = torch.arange(1 - m, n, device=bias.device), counts > 0
    within = bool(torch.stack(spreads).max() <= 20 * noise * torch.stack(sizes).max())
    return (all_lags[occurs], torch.stack(table)[:, occurs]) if within else None


def _grouped(
    bias: Float[Tensor, "h i j"], allowed: Bool[Tensor, "#h i j"], noise: float, lag: Int[Tensor, "i j"]
) -> tuple[Int[Tensor, " n"], Float[Tensor, "h n"]] | None:
    """The same for lags that do not lie on diagonals."""
    seen = allowed[0].expand(bias.shape[1:])
    values, place = lag[seen].unique(return_inverse=True)
    flat = bias[:, seen]
    counts = torch.bincount(place).to(flat)
    table = torch.zeros(len(bias), len(values), dtype=flat.dtype, device=flat.device)
    table = table.index_add(1, place, flat) / counts
    spread = (flat - table[:, place]).abs().max()
    return (values, table) if bool(spread <= 20 * noise * flat.abs().max()) else None


def _diagonals(x: Float[Tensor, "i j"]) -> Float[Tensor, "i lags"]:
    """Entries with one lag per column, from -(j - 1) to i - 1, and zeros elsewhere.

    Rows of one more entry than there are lags turn diagonals into columns.
    """
    n, m = x.shape
    return torch.nn.functional.pad(x.flip(-1), (0, n)).flatten()[:-n].view(n, n + m - 1)


def find_buckets(
    lag: Int[Tensor, " n"], table: Float[Tensor, "h n"], declared: Buckets | None, within: float = 0.0
) -> Buckets | None:
    """The buckets that share a table's lags as they are shared, the declared ones first; None if none do.

    Args:
        lag: Lags, ascending.
        table: Bias of each lag per head; lags of one bucket have equal biases.
        declared: What the configuration says, if anything.
        within: Rounding error of the biases, as where they are differences of logits; 0 where they were seen.
    """
    same = ((table[:, 1:] - table[:, :-1]).abs() <= within).all(0)
    if bool(same.all()):
        return None
    kinds = [*itertools.product((True, False), N_BUCKETS)]
    if declared:  # Past keys alone do not tell n buckets both ways from half as many for the past.
        kinds.sort(key=lambda one: (one[1] != declared.n_buckets, one[0] != declared.bidirectional))
    grid = (Buckets(*kind, far) for kind, far in itertools.product(kinds, MAX_DISTANCES))
    others = _by_last_bucket(lag, same, kinds) if declared else ()
    candidates = itertools.chain([declared] if declared else [], grid, others)
    found = next((one for one in candidates if _shares(one, lag, table, within)), None)
    if found is None and declared and _is_one_each(declared, lag, table, within):
        return declared  # Whose table has equal entries in several buckets.
    return found


def _by_last_bucket(
    lag: Int[Tensor, " n"], same: Bool[Tensor, " n-1"], kinds: Sequence[tuple[bool, int]]
) -> Iterator[Buckets]:
    r"""Buckets of any maximal distance, by where the farthest past keys begin to share one.

    Of b buckets in one direction, e = b / 2 hold one lag each, and the last begins at
    :math:`s = \lceil e (m / e)^{(b - e - 1) / (b - e)} \rceil` for the maximal distance m.

    Args:
        lag: Lags, ascending.
        same: Whether each has the biases of the next one.
        kinds: Whether buckets tell future from past, and their number, in the order in which to try them.
    """
    apart = (~same).nonzero()
    start = int(lag[int(apart[-1]) + 1]) if len(apart) else 0
    for way, n_buckets in kinds:
        one_way = n_buckets // 2 if way else n_buckets
        single = one_way // 2
        power = (one_way - single) / (one_way - single - 1) if one_way - single > 1 else 1.0
        if start <= single:
            continue
        low, high = (single * (s / single) ** power for s in (start - 1, start))
        yield from (Buckets(way, n_buckets, m) for m in range(max(single + 1, int(low)), int(high) + 2))


def _is_one_each(
    buckets: Buckets, lag: Int[Tensor, " n"], table: Float[Tensor, "h n"], within: float
) -> bool:
    """Whether lags of equal buckets have equal biases."""
    by_bucket, place = _first_of_each(buckets, lag, table)
    return bool(((table.T - by_bucket[place]).abs() <= within).all())


def _first_of_each(
    buckets: Buckets, lag: Int[Tensor, " n"], table: Float[Tensor, "h n"]
) -> tuple[Float[Tensor, "buckets h"], Int[Tensor, " n"]]:
    """The biases of the first lag of each bucket, and the bucket's place of each lag."""
    numbers, place = buckets.of(lag).unique(return_inverse=True)
    first = torch.full_like(numbers, len(place)).scatter_reduce(
        0, place, torch.arange(len(place), device=place.device), "amin"
    )
    return table[:, first].T.contiguous(), place


def _shares(buckets: Buckets, lag: Int[Tensor, " n"], table: Float[Tensor, "h n"], within: float) -> bool:
    """Whether lags have equal biases exactly where they have equal buckets."""
    if not (buckets.has_scale and _is_one_each(buckets, lag, table, within)):
        return False
    by_bucket, _ = _first_of_each(buckets, lag, table)
    apart = torch.cdist(by_bucket, by_bucket, p=math.inf).fill_diagonal_(math.inf)
    return bool((apart > within).all())
