"""Where each head attends: mean lag, first token, previous token, induction, and its pattern over lags."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

LAGS = 16  # Lags 0 to 15, over which mean attention is kept.
SHOWN = 3  # Examples kept of each head.


@dataclass(frozen=True)
class AttendedHead:
    """Where one head attends on some sequences, as means over queries from the third token on.

    Args:
        layer: Layer of the head, from 0.
        head: Its number within the layer.
        reach: Mean lag, weighted by attention to tokens, in positions.
        sink: Attention to the first token, as a fraction.
        previous: Attention to the previous token, as a fraction.
        induction: Attention to tokens that follow an earlier occurrence of the current one, as a fraction;
            the mean over queries that have such a token, or None if none has.
        kernel: Attention at lags 0, 1, ..., each a mean over the queries that reach so far.
        examples: The strongest attention beyond the first token, in words.
    """

    layer: int
    head: int
    reach: float
    sink: float
    previous: float
    induction: float | None
    kernel: tuple[float, ...]
    examples: str


@torch.no_grad()
def attended_heads(
    layer: int,
    pattern: Float[Tensor, "b h t t"],
    ids: Int[Tensor, "b t"],
    real: Bool[Tensor, "b t"],
) -> list[AttendedHead]:
    """Where the heads of a layer attend.

    Args:
        layer: Number of the layer.
        pattern: Attention patterns.
        ids: Tokens.
        real: Which places hold tokens.
    """
    sums = AttendedSums()
    sums.add(pattern, ids, real)
    return sums.heads(layer)


AttendedPair = tuple[float, int, str]  # Weight, token that attends, and both in words.


class AttendedSums:
    """Sums over batches of sequences, from which follows where the heads of a layer attend."""

    def __init__(self) -> None:
        self._sums: dict[str | int, Tensor] = {}  # By quantity, or by lag, with shape (h,).
        self._counts: dict[str | int, Tensor] = {}
        self._examples: list[list[AttendedPair]] = []

    @torch.no_grad()
    def add(
        self,
        pattern: Float[Tensor, "b h t t"],
        ids: Int[Tensor, "b t"],
        real: Bool[Tensor, "b t"],
        *,
        with_sinks: bool = False,
    ) -> None:
        """Add some sequences.

        Args:
            pattern: Attention patterns.
            ids: Tokens.
            real: Which places hold tokens.
            with_sinks: Whether sinks beside the keys take a share of the attention; the mean lag of a query
                is then over the rest.
        """
        pattern = pattern.double()
        t = ids.shape[1]
        lag = torch.arange(t, device=ids.device)[:, None] - torch.arange(t, device=ids.device)
        asked = real & (torch.arange(t, device=ids.device) >= 2)
        self._add("reach", mean_lags(pattern, lag, with_sinks=with_sinks), asked)
        self._add("sink", pattern[..., 0], asked)
        self._add("previous", (pattern * (lag == 1)).sum(-1), asked)
        copied = _following(ids) & (lag > 0)
        self._add("induction", (pattern * copied[:, None]).sum(-1), asked & copied.any(-1))
        for n in range(min(LAGS, t)):
            self._add(n, pattern.diagonal(-n, 2, 3), real[:, n:])
        fresh = [_examples(pattern[:, head], ids, real) for head in range(pattern.shape[1])]
        before = self._examples or [[] for _ in fresh]
        self._examples = [_strongest(old + new) for old, new in zip(before, fresh, strict=True)]

    def heads(self, layer: int) -> list[AttendedHead]:
        """Where the heads attend, as means over all sequences.

        Args:
            layer: Number of the layer.
        """
        means = {name: total / self._counts[name] for name, total in self._sums.items()}
        kernels = [mean for name, mean in means.items() if isinstance(name, int)]
        return [
            AttendedHead(
                layer,
                head,
                float(means["reach"][head]),
                float(means["sink"][head]),
                float(means["previous"][head]),
                None if means["induction"].isnan().any() else float(means["induction"][head]),
                tuple(float(kernel[head]) for kernel in kernels),
                "; ".join(text for _, _, text in examples),
            )
            for head, examples in enumerate(self._examples)
        ]

    def _add(self, name: str | int, values: Float[Tensor, "b h t"], asked: Bool[Tensor, "b t"]) -> None:
        """Add the values of the queries that are asked."""
        total, count = (values * asked[:, None]).sum((0, 2)), asked.sum()
        if name in self._sums:
            total, count = self._sums[name] + total, self._counts[name] + count
        self._sums[name], self._counts[name] = total, count


def mean_lags(
    pattern: Float[Tensor, "b h t t"], lag: Tensor, *, with_sinks: bool = False
) -> Float[Tensor, "b h t"]:
    """Mean lag of each query, weighted by its attention.

    Args:
        pattern: Attention patterns.
        lag: Of every query and key, with shape (t, t).
        with_sinks: Whether rows sum to less than one, because sinks beside the keys take the rest.
    """
    lags = (pattern * lag).sum(-1)
    return lags / pattern.sum(-1).clamp(min=torch.finfo(pattern.dtype).tiny) if with_sinks else lags


def _following(ids: Int[Tensor, "b t"]) -> Bool[Tensor, "b t t"]:
    """Whether key j follows a token equal to that of query i."""
    equal = ids[:, :, None] == ids[:, None, :-1]
    return torch.cat([torch.zeros_like(equal[..., :1]), equal], -1)


def _strongest(examples: list[AttendedPair]) -> list[AttendedPair]:
    """The strongest examples of different tokens, those that came first among equal ones."""
    best: dict[int, AttendedPair] = {}
    for example in sorted(examples, key=lambda one: -one[0]):
        best.setdefault(example[1], example)
    return list(best.values())[:SHOWN]


def _examples(pattern: Float[Tensor, "b t t"], ids: Tensor, real: Tensor) -> list[AttendedPair]:
    """The strongest attention of different tokens, such as "12 at 9 to 5 at 3: 0.97"."""
    t = ids.shape[1]
    later = torch.ones(t, t, dtype=torch.bool, device=ids.device).tril(-1)
    later[:, 0] = False
    weights = pattern * later * real[:, :, None] * real[:, None]
    found: list[AttendedPair] = []
    seen: set[int] = set()
    for place in weights.flatten().argsort(descending=True)[: 50 * SHOWN].tolist():
        example, query, key = place // t**2, place // t % t, place % t
        token = int(ids[example, query])
        if token in seen or len(found) == SHOWN or weights[example, query, key] == 0:
            continue
        seen.add(token)
        weight = float(weights[example, query, key])
        text = f"{token} at {query} to {int(ids[example, key])} at {key}: {weight:.2f}"
        found.append((weight, token, text))
    return found
