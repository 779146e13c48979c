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
        reach: Mean lag, weighted by attention, in positions.
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
    pattern = pattern.double()
    t = ids.shape[1]
    lag = torch.arange(t, device=ids.device)[:, None] - torch.arange(t, device=ids.device)
    asked = real & (torch.arange(t, device=ids.device) >= 2)
    reach = _mean((pattern * lag).sum(-1), asked)
    sink = _mean(pattern[..., 0], asked)
    previous = _mean((pattern * (lag == 1)).sum(-1), asked)
    copied = _following(ids) & (lag > 0)
    induction = _mean((pattern * copied[:, None]).sum(-1), asked & copied.any(-1))
    kernels = [_mean(pattern.diagonal(-n, 2, 3), real[:, n:]) for n in range(min(LAGS, t))]
    return [
        AttendedHead(
            layer,
            head,
            float(reach[head]),
            float(sink[head]),
            float(previous[head]),
            None if induction.isnan().any() else float(induction[head]),
            tuple(float(kernel[head]) for kernel in kernels),
            _examples(pattern[:, head], ids, real),
        )
        for head in range(pattern.shape[1])
    ]


def _mean(values: Float[Tensor, "b h t"], asked: Bool[Tensor, "b t"]) -> Float[Tensor, " h"]:
    """Mean over the queries that are asked."""
    return (values * asked[:, None]).sum((0, 2)) / asked.sum()


def _following(ids: Int[Tensor, "b t"]) -> Bool[Tensor, "b t t"]:
    """Whether key j follows a token equal to that of query i."""
    equal = ids[:, :, None] == ids[:, None, :-1]
    return torch.cat([torch.zeros_like(equal[..., :1]), equal], -1)


def _examples(pattern: Float[Tensor, "b t t"], ids: Tensor, real: Tensor) -> str:
    """The strongest attention of different tokens, such as "12 at 9 to 5 at 3: 0.97"."""
    t = ids.shape[1]
    later = torch.ones(t, t, dtype=torch.bool, device=ids.device).tril(-1)
    later[:, 0] = False
    weights = pattern * later * real[:, :, None] * real[:, None]
    texts: list[str] = []
    seen: set[int] = set()
    for place in weights.flatten().argsort(descending=True)[: 50 * SHOWN].tolist():
        example, query, key = place // t**2, place // t % t, place % t
        token = int(ids[example, query])
        if token in seen or len(texts) == SHOWN or weights[example, query, key] == 0:
            continue
        seen.add(token)
        weight = float(weights[example, query, key])
        texts.append(f"{token} at {query} to {int(ids[example, key])} at {key}: {weight:.2f}")
    return "; ".join(texts)
