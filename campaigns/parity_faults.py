"""The faults that `python -m campaigns.parity` draws, put into the model's own code.

None of them uses the simulations that `spectrope parity` compares a runtime with.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from tests.checkpoints.audit.injections import at_kernel, attending, in_head, later, masked, options, rotating
from tests.checkpoints.audit.injections import turned as turned_values
from tests.checkpoints.audit.museum import at, interleaved, values_in_turns
from torch import Tensor

Inject = Callable[[Any, pytest.MonkeyPatch], None]


@dataclass(frozen=True)
class Drawn:
    """One fault of the draw.

    Args:
        code: In the catalogue.
        words: What was put into the model.
        inject: Puts it there.
        layers: Where; empty for all layers.
    """

    code: str
    words: str
    inject: Inject
    layers: tuple[int, ...] = ()


def rope(**parameters: Any) -> Inject:
    """Build the rotary module from other parameters."""

    def inject(model: Any, patch: pytest.MonkeyPatch) -> None:
        config = type(model.config)(**(model.config.to_dict() | {"rope_parameters": parameters}))
        model.model.rotary_emb = type(model.model.rotary_emb)(config)

    return inject


def rope_in(layer: int, **parameters: Any) -> Inject:
    """One layer takes the table of other parameters."""

    def inject(model: Any, patch: pytest.MonkeyPatch) -> None:
        config = type(model.config)(**(model.config.to_dict() | {"rope_parameters": parameters}))
        other = type(model.model.rotary_emb)(config)

        def swap(_: Any, args: Any, given: dict[str, Any]) -> Any:
            return args, given | {"position_embeddings": other(args[0], given["position_ids"])}

        model.model.layers[layer].register_forward_pre_hook(swap, with_kwargs=True)

    return inject


def tables(change: Callable[[Tensor], Tensor]) -> Inject:
    """Change the frequencies that the rotary module keeps."""

    def inject(model: Any, patch: pytest.MonkeyPatch) -> None:
        model.model.rotary_emb.inv_freq.copy_(change(model.model.rotary_emb.inv_freq.clone()))

    return inject


class Draw:
    """Draws faults with their parameters."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def fault(self) -> Drawn:
        """One of the codes, all alike, then one of its faults."""
        code = self.rng.choice(sorted(self.codes()))
        kinds = self.codes()[code]
        words, inject, layers = kinds[self.rng.integers(len(kinds))]()
        return Drawn(f"SPE{code}", words, inject, layers)

    def codes(self) -> dict[str, list[Callable[[], tuple[str, Inject, tuple[int, ...]]]]]:
        """How each code's faults are drawn."""
        return {
            "101": [self.base],
            "102": [self.linear, self.yarn, self.llama3, self.rounded, self.unwritten],
            "103": [self.factor],
            "104": [self.pairs],
            "105": [self.part],
            "106": [self.low_angles, self.low_tables],
            "107": [self.sense],
            "108": [self.shift],
            "109": [self.head],
            "110": [self.still],
            "111": [self.clamped, self.zigzag, self.wrapped],
            "112": [self.values],
            "201": [self.both_ways, self.block],
            "202": [self.window, self.chunk],
            "403": [self.growth],
            "404": [self.scale],
            "405": [self.cap],
            "406": [self.sinks],
            "407": [self.turns, self.first],
            "711": [self.rows],
        }

    def where(self) -> tuple[int, ...]:
        """All layers, or one in a third of the cases."""
        return (int(self.rng.integers(2)),) if self.rng.random() < 1 / 3 else ()

    def between(self, low: float, high: float) -> float:
        """A number, uniform in its logarithm."""
        return float(math.exp(self.rng.uniform(math.log(low), math.log(high))))

    def apart(self, low: float, high: float, from_: float = 1.0, by: float = 1.1) -> float:
        """The same, not within a ratio of a number."""
        while True:
            x = self.between(low, high)
            if abs(math.log(x / from_)) > math.log(by):
                return x

    def base(self):
        theta, layers = self.apart(1e3, 1e7, 1e4, 1.3), self.where()
        inject = rope(rope_type="default", rope_theta=theta)
        if layers:
            inject = rope_in(layers[0], rope_type="default", rope_theta=theta)
        return f"base {theta:.6g}", inject, layers

    def linear(self):
        factor = self.between(1.2, 8)
        return f"linear by {factor:.4g}", rope(rope_type="linear", rope_theta=1e4, factor=factor), ()

    def yarn(self):
        factor, original = self.between(1.5, 16), int(self.rng.choice([32, 64, 128]))
        inject = rope(
            rope_type="yarn", rope_theta=1e4, factor=factor, original_max_position_embeddings=original
        )
        return f"yarn by {factor:.4g} from {original}", inject, ()

    def llama3(self):
        factor, original = self.between(2, 16), int(self.rng.choice([32, 64, 128]))
        inject = rope(
            rope_type="llama3", rope_theta=1e4, factor=factor, low_freq_factor=1.0, high_freq_factor=4.0,
            original_max_position_embeddings=original,
        )  # fmt: skip
        return f"llama3 by {factor:.4g} from {original}", inject, ()

    def rounded(self):
        return "frequencies in bfloat16", tables(lambda f: f.bfloat16().float()), ()

    def unwritten(self):
        n = int(self.rng.integers(1, 5))
        return f"last {n} frequencies 0", tables(lambda f: f * (torch.arange(len(f)) < len(f) - n)), ()

    def factor(self):
        gain = self.apart(0.7, 1.5)

        def inject(model: Any, patch: pytest.MonkeyPatch) -> None:
            model.model.rotary_emb.attention_scaling = gain

        return f"attention factor {gain:.4g}", inject, ()

    def pairs(self):
        layers, side = self.where(), str(self.rng.choice(["both", "queries"]))

        def rotate(own: Any, q: Tensor, k: Tensor, c: Tensor, s: Tensor) -> Any:
            return interleaved(q, c, s), interleaved(k, c, s) if side == "both" else own(q, k, c, s)[1]

        return f"pairs of {side} adjacent", rotating(rotate, layers), layers

    def part(self):
        share, layers = float(self.rng.choice([0.25, 0.5, 0.75])), self.where()

        def rotate(own: Any, q: Tensor, k: Tensor, c: Tensor, s: Tensor) -> Any:
            width = int(share * q.shape[-1])
            t = torch.arange(q.shape[2])[:, None]
            angles = t * 1e4 ** (-torch.arange(0, width, 2) / width)
            cos, sin = (torch.cat([f, f], -1)[None].to(q) for f in (angles.cos(), angles.sin()))
            some = own(q[..., :width], k[..., :width], cos, sin)
            return tuple(torch.cat([a, b[..., width:]], -1) for a, b in zip(some, (q, k), strict=True))

        return f"{share:.2g} of the width rotated", rotating(rotate, layers), layers

    def low_angles(self):
        def inject(model: Any, patch: pytest.MonkeyPatch) -> None:
            def forward(x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
                angles = position_ids[..., None].bfloat16() * model.model.rotary_emb.inv_freq.bfloat16()
                angles = torch.cat([angles, angles], -1).float()
                return angles.cos().to(x.dtype), angles.sin().to(x.dtype)

            patch.setattr(model.model.rotary_emb, "forward", forward)

        return "angles in bfloat16", inject, ()

    def low_tables(self):
        def rotate(own: Any, q: Tensor, k: Tensor, c: Tensor, s: Tensor) -> Any:
            return own(q, k, c.bfloat16().to(q.dtype), s.bfloat16().to(q.dtype))

        return "sines and cosines in bfloat16", rotating(rotate), ()

    def sense(self):
        layers = self.where()
        return "sense reversed", rotating(lambda own, q, k, c, s: own(q, k, c, -s), layers), layers

    def shift(self):
        by, layers = int(self.rng.integers(1, 7)), self.where()

        def rotate(own: Any, q: Tensor, k: Tensor, c: Tensor, s: Tensor) -> Any:
            return own(q, k, c, s)[0], own(q, k, *later(c.float(), s.float(), by))[1].to(k.dtype)

        return f"keys {by} later", rotating(rotate, layers), layers

    def head(self):
        side, layers = str(self.rng.choice(["queries", "keys"])), self.where()
        head = int(self.rng.integers(4 if side == "queries" else 2))

        def rotate(own: Any, q: Tensor, k: Tensor, c: Tensor, s: Tensor) -> Any:
            a, b = own(q, k, c, s)
            return (in_head(a, head, q), b) if side == "queries" else (a, in_head(b, head, k))

        return f"{side} of head {head} not rotated", rotating(rotate, layers), layers

    def still(self):
        layers = self.where()
        return "no rotation", rotating(lambda own, q, k, c, s: (q, k), layers), layers

    def clamped(self):
        last = int(self.between(16, 100))
        return f"positions stay at {last}", at(lambda t: t.clamp(max=last)), ()

    def zigzag(self):
        n = int(self.rng.choice([2, 4]))

        def places(t: Tensor) -> Tensor:
            parts = t.chunk(2 * n)
            return torch.cat([x for i in range(n) for x in (parts[i], parts[2 * n - 1 - i])])

        return f"zigzag over {n}", at(places), ()

    def wrapped(self):
        period = int(self.between(16, 100))
        return f"positions begin again after {period}", at(lambda t: t % period), ()

    def values(self):
        layers = self.where()

        def turn(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            return q, k, turned_values(v).to(v.dtype)

        return "values rotated", at_kernel(turn, layers), layers

    def both_ways(self):
        layers = self.where()
        return "later keys seen", masked(lambda n: n.abs() < 9999, layers), layers

    def block(self):
        size, layers = int(self.rng.choice([16, 32, 64])), self.where()

        def drawn(lag: Tensor) -> Tensor:
            t = torch.arange(len(lag))
            return t[None, :] < size * (t[:, None] // size + 1)

        return f"rest of a block of {size} seen", masked(drawn, layers), layers

    def window(self):
        size, layers = int(self.between(8, 100)), self.where()
        return f"window of {size}", masked(lambda n: (n >= 0) & (n < size), layers), layers

    def chunk(self):
        size, layers = int(self.between(8, 100)), self.where()

        def drawn(lag: Tensor) -> Tensor:
            part = torch.arange(len(lag)) // size
            return (lag >= 0) & (part[:, None] == part[None, :])

        return f"chunks of {size}", masked(drawn, layers), layers

    def growth(self):
        by, floor, layers = self.between(0.05, 0.5), int(self.rng.choice([1, 4, 8, 16])), self.where()

        def warm(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            t = torch.arange(q.shape[2])
            return q * (1 + by * torch.log1p(t // floor))[:, None].to(q.dtype), k, v

        return f"queries grow by {by:.3g} log(1 + t // {floor})", at_kernel(warm, layers), layers

    def scale(self):
        by, layers = self.apart(0.5, 2.0), self.where()
        inject = options(lambda given: {"scaling": given["scaling"] * by}, layers)
        return f"scale times {by:.4g}", inject, layers

    def cap(self):
        size = self.between(1, 30)

        def capped(own: Any, q: Tensor, k: Tensor, v: Tensor, mask: Any, given: Any) -> Any:
            k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
            logits = size * torch.tanh(q @ k.mT * given["scaling"] / size)
            hidden = torch.ones_like(logits[0, 0], dtype=torch.bool).triu(1)
            return (logits.masked_fill(hidden, -torch.inf).softmax(-1) @ v).transpose(1, 2), None

        return f"cap {size:.4g}", attending(capped), ()

    def sinks(self):
        sinks = torch.from_numpy(self.rng.uniform(-1, 4, 4)).float()

        def sunk(own: Any, q: Tensor, k: Tensor, v: Tensor, mask: Any, given: Any) -> Any:
            k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
            logits = q @ k.mT * given["scaling"]
            hidden = torch.ones_like(logits[0, 0], dtype=torch.bool).triu(1)
            logits = logits.masked_fill(hidden, -torch.inf)
            column = sinks.to(q)[None, :, None, None].expand(len(q), -1, q.shape[2], 1)
            pattern = torch.cat([logits, column], -1).softmax(-1)[..., :-1]
            return (pattern @ v).transpose(1, 2), None

        return f"sinks {', '.join(f'{x:.2f}' for x in sinks.tolist())}", attending(sunk), ()

    def turns(self):
        return "groups of values in turn", attending(values_in_turns), ()

    def first(self):
        def one(own: Any, q: Tensor, k: Tensor, v: Tensor, mask: Any, given: Any) -> Any:
            return own(q, *(x[:, :1].expand_as(x) for x in (k, v)), mask)

        return "every query head reads group 0", attending(one), ()

    def rows(self):
        layers = self.where()

        def inject(model: Any, patch: pytest.MonkeyPatch) -> None:
            for number in layers or range(2):
                attention = model.model.layers[number].self_attn
                for name in ("q_proj", "k_proj"):
                    weight = getattr(attention, name).weight
                    heads = weight.data.unflatten(0, (-1, attention.head_dim))
                    half = attention.head_dim // 2
                    weight.data = heads.unflatten(1, (half, 2)).transpose(1, 2).flatten(1, 2).flatten(0, 1)

        return "rows of queries and keys for adjacent pairs", inject, layers
