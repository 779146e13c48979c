"""The paper's public code, written plainly from the digest of it (R1 to R17): nothing here is the package's.

Weights are a dictionary of tensors by name, as in a state dictionary of the public architecture. Where the
digest leaves something open, docs/explanation/conformance.md says what is taken here.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, gelu, layer_norm

Weights = dict[str, Tensor]
Drop = Callable[[str, Tensor], Tensor]  # Of a site's name and what stands there.
PADDING = 0


@dataclass(frozen=True)
class Sizes:
    """Of a network: `width` is that of the residual stream; `rotary` and `latent` are latent attention's."""

    words: int
    length: int
    width: int
    layers: int
    heads: int
    head: int
    hidden: int
    latent: int
    rotary: int


@dataclass(frozen=True)
class Kind:
    """What the public code calls an encoding: `rotated` heads, and whether it is its latent attention."""

    name: str
    rotated: int = 0
    latent: bool = False


def shapes(kind: Kind, sizes: Sizes) -> dict[str, tuple[int, ...]]:
    """Names and shapes of all weights."""
    c, f = sizes.width, sizes.hidden
    found: dict[str, tuple[int, ...]] = {"embedding.weight": (sizes.words, c)}
    if kind.name == "random" or kind.latent:  # R6, R11
        found["positions.weight"] = (sizes.length, c)
    for layer in range(sizes.layers):
        here = f"layers.{layer}"
        for norm in ("norm1", "norm2"):
            found |= {f"{here}.{norm}.weight": (c,), f"{here}.{norm}.bias": (c,)}
        attention = _latent_shapes(sizes) if kind.latent else _plain_shapes(sizes)
        if kind.name == "relative":  # R4
            attention["relative"] = (2 * sizes.length - 1, sizes.heads)
        found |= {f"{here}.attention.{name}": shape for name, shape in attention.items()}
        found |= {f"{here}.linear1.weight": (f, c), f"{here}.linear1.bias": (f,)}
        found |= {f"{here}.linear2.weight": (c, f), f"{here}.linear2.bias": (c,)}
    if kind.latent:  # R7
        found |= {"norm.weight": (c,), "norm.bias": (c,)}
    return found | {"classifier.weight": (sizes.words, c), "classifier.bias": (sizes.words,)}  # R13


def _plain_shapes(sizes: Sizes) -> dict[str, tuple[int, ...]]:
    c, inner = sizes.width, sizes.heads * sizes.head
    found: dict[str, tuple[int, ...]] = {}
    for name in ("query", "key", "value"):
        found |= {f"{name}.weight": (inner, c), f"{name}.bias": (inner,)}
    return found | {"output.weight": (c, inner), "output.bias": (c,)}


def _latent_shapes(sizes: Sizes) -> dict[str, tuple[int, ...]]:
    """R17: no bias anywhere; R11: one rotary query for all heads."""
    c, z, inner = sizes.width, sizes.latent, sizes.heads * sizes.head
    return {
        "query_down.weight": (z, c),
        "query_up.weight": (inner, z),
        "query_rotary.weight": (sizes.rotary, z),
        "key_value_down.weight": (z, c),
        "key_up.weight": (inner, z),
        "value_up.weight": (inner, z),
        "key_rotary.weight": (sizes.rotary, c),
        "output.weight": (c, inner),
    }


def nothing_dropped(site: str, x: Tensor) -> Tensor:
    """Outside training."""
    return x


def logits(w: Weights, kind: Kind, sizes: Sizes, words: Tensor, drop: Drop = nothing_dropped) -> Tensor:
    """Class logits of sequences of words (n, t), padded at the end with 0."""
    t = words.shape[1]
    x = w["embedding.weight"][words]
    if kind.name == "absolute":
        x = x + _waves(t, sizes.width, x).flatten(-2)
    elif kind.name == "rope":  # R3: all sines, then all cosines
        x = x + torch.cat(_waves(t, sizes.width, x).unbind(-1), -1)
    elif "positions.weight" in w:
        x = x + w["positions.weight"][:t]
    embedded, real = x, words != PADDING
    for layer in range(sizes.layers):
        here = f"layers.{layer}"
        normed = _norm(w, f"{here}.norm1", x)
        if kind.latent:
            x = x + _latent_attention(w, f"{here}.attention", sizes, normed, real)
        else:  # R2
            x = x + _attention(w, f"{here}.attention", kind, sizes, normed, embedded, drop)
        x = x + _feed_forward(w, here, kind, _norm(w, f"{here}.norm2", x), drop)
    if kind.latent:  # R7
        x = _norm(w, "norm", x)
        pooled = (x * real[..., None]).sum(1) / real.sum(1)[:, None]
    else:
        pooled = x.sum(1) / t
    return _linear(w, "classifier", pooled)


def _linear(w: Weights, name: str, x: Tensor) -> Tensor:
    product = x @ w[f"{name}.weight"].T
    return product + w[f"{name}.bias"] if f"{name}.bias" in w else product


def _norm(w: Weights, name: str, x: Tensor) -> Tensor:
    return layer_norm(x, x.shape[-1:], w[f"{name}.weight"], w[f"{name}.bias"], 1e-5)


def _waves(t: int, width: int, like: Tensor) -> Tensor:
    """Sine and cosine of p / 10000^(2j / width), with shape (t, width / 2, 2)."""
    angles = [[p / 10000 ** (2 * j / width) for j in range(width // 2)] for p in range(t)]
    pairs = [[(math.sin(angle), math.cos(angle)) for angle in row] for row in angles]
    return torch.tensor(pairs, dtype=torch.float64).to(like.dtype)


def _heads(x: Tensor, n_heads: int) -> Tensor:
    """(n, t, heads * d) to (n, heads, t, d), head after head."""
    return torch.stack(x.chunk(n_heads, -1), 1)


def _attention(
    w: Weights, here: str, kind: Kind, sizes: Sizes, x: Tensor, memory: Tensor, drop: Drop
) -> Tensor:
    """R1: no causal mask; R7: padding is seen like any word."""
    t, h = x.shape[1], sizes.heads
    q = _heads(_linear(w, f"{here}.query", x), h)
    k, v = (_heads(_linear(w, f"{here}.{name}", memory), h) for name in ("key", "value"))
    sine, cosine = _waves(t, sizes.head, x).unbind(-1)
    turned = kind.rotated
    q, k = (torch.cat([_turn(y[:, :turned], sine, cosine), y[:, turned:]], 1) for y in (q, k))
    scores = q @ k.transpose(-1, -2) / math.sqrt(sizes.head)
    lag = torch.arange(t)[:, None] - torch.arange(t)[None, :]
    if kind.name == "alibi":  # R5
        slopes = torch.tensor([math.exp(-i / h) for i in range(h)], dtype=torch.float64).to(x.dtype)
        scores = scores - slopes[:, None, None] * lag.abs()
    if kind.name == "relative":  # R4
        scores = scores + w[f"{here}.relative"][lag + sizes.length - 1].permute(2, 0, 1)
    pattern = drop(f"{here}.pattern", scores.softmax(-1))
    return drop(f"{here}.output", _linear(w, f"{here}.output", _side_by_side(pattern @ v)))  # R16


def _turn(x: Tensor, sine: Tensor, cosine: Tensor) -> Tensor:
    """Rotate neighbouring coordinates by the angle of their position."""
    first, second = x[..., 0::2], x[..., 1::2]
    return torch.stack([first * cosine - second * sine, first * sine + second * cosine], -1).flatten(-2)


def _side_by_side(x: Tensor) -> Tensor:
    return torch.cat(x.unbind(1), -1)


def _latent_attention(w: Weights, here: str, sizes: Sizes, x: Tensor, real: Tensor) -> Tensor:
    """Hidden states alone; no norm on latents (R17), nothing dropped (R16), padded keys masked (R7)."""
    t, h = x.shape[1], sizes.heads
    queries, latents = _linear(w, f"{here}.query_down", x), _linear(w, f"{here}.key_value_down", x)
    content_q = _heads(_linear(w, f"{here}.query_up", queries), h)
    content_k, v = (_heads(_linear(w, f"{here}.{name}_up", latents), h) for name in ("key", "value"))
    # R11: the table [sines; cosines], of whose entries the even ones are taken for sines, the odd for cosines
    table = torch.cat(_waves(t, sizes.rotary, x).unbind(-1), -1)
    sine, cosine = table[:, 0::2], table[:, 1::2]
    rotary_q = _turn(_linear(w, f"{here}.query_rotary", queries), sine, cosine)
    rotary_k = _turn(_linear(w, f"{here}.key_rotary", x), sine, cosine)
    scores = content_q @ content_k.transpose(-1, -2) + (rotary_q @ rotary_k.transpose(-1, -2))[:, None]
    scores = scores / math.sqrt(sizes.head + sizes.rotary)
    pattern = scores.masked_fill(~real[:, None, None, :], -torch.inf).softmax(-1)
    return _linear(w, f"{here}.output", _side_by_side(pattern @ v))


def _feed_forward(w: Weights, here: str, kind: Kind, x: Tensor, drop: Drop) -> Tensor:
    """R14: linear, GELU, dropout, linear, dropout in latent attention, else linear, ReLU, linear, dropout."""
    hidden = _linear(w, f"{here}.linear1", x)
    hidden = drop(f"{here}.hidden", gelu(hidden)) if kind.latent else hidden.clamp(min=0)
    return drop(f"{here}.feed_forward", _linear(w, f"{here}.linear2", hidden))


def loss(found: Tensor, labels: Tensor, kind: Kind) -> Tensor:
    """R13: mean cross-entropy, of all examples in latent attention and of labels other than 0 elsewhere."""
    counted = torch.ones_like(labels, dtype=torch.bool) if kind.latent else labels != 0
    return cross_entropy(found[counted], labels[counted])


def accuracy(found: Tensor, labels: Tensor, kind: Kind) -> float:
    """R13: the fraction that is right, of the same examples."""
    right = [p == y for p, y in zip(found.argmax(-1).tolist(), labels.tolist(), strict=True)]
    counted = [hit for hit, y in zip(right, labels.tolist(), strict=True) if kind.latent or y != 0]
    return sum(counted) / len(counted)


def ablations(w: Weights, kind: Kind, sizes: Sizes) -> Iterator[tuple[int, int]]:
    """Each head in its turn, while the weights are changed: R9, and R12 in latent attention.

    A head is put back when the turn comes to the next one of its layer, so that no layer's last head ever is.
    """
    for layer in range(sizes.layers):
        for head in range(sizes.heads):
            place = slice(head * sizes.head, (head + 1) * sizes.head)
            if kind.latent:  # Columns, of which there are none beyond the width of the latents.
                ups = ("query_up", "query_rotary", "key_up", "value_up")
                cut = {f"layers.{layer}.attention.{name}.weight": (slice(None), place) for name in ups}
            else:
                cut = {f"layers.{layer}.attention.value.{name}": (place,) for name in ("weight", "bias")}
            before = {name: w[name] for name in cut}
            w |= {name: _zeroed(w[name], where) for name, where in cut.items()}
            yield layer, head
            if head < sizes.heads - 1:
                w |= before


def _zeroed(x: Tensor, where: tuple[slice, ...]) -> Tensor:
    x = x.clone()
    x[where] = 0
    return x
