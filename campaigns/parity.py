"""How often the cause of a difference is named from log-probabilities alone: `python -m campaigns.parity`.

Thirty faults are drawn with a seed from those of the catalogue that a Llama can have, each with random
parameters, in all layers or in one, in float32 or bfloat16. Another runtime then reports the logarithms of
the probabilities of its 20 most probable tokens, to five decimals, and `spectrope parity` names a cause.
Pairs without a fault follow: the same model, and the model in other precisions and with other kernels.

A fault that changes no prediction, such as tables in bfloat16 in a runtime in bfloat16, is drawn again.
The faults are put into the model's own code, not by the simulations that they are compared with. `--seed`
draws others. The held draw has the seed 2026 and was made once, after both were written.
"""

import argparse
import json
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from tests.checkpoints.audit.injections import at_kernel, attending, in_head, later, masked, options, rotating
from tests.checkpoints.audit.injections import turned as turned_values
from tests.checkpoints.audit.museum import at, interleaved, values_in_turns
from tests.checkpoints.parity.induction import FOLDER, LENGTH, sequences
from torch import Tensor

from spectrope.checkpoints import open_model
from spectrope.checkpoints.parity import ModelRuntime, Parity, Runtime, parity
from spectrope.checkpoints.parity.cause import UNNOTICED
from spectrope.checkpoints.parity.observed import Observed, divergence
from spectrope.checkpoints.parity.run import places_of

RESULTS = Path(__file__).with_name("results") / "parity.json"
HELD, DRAWN, PROMPTS, REPORTED, DECIMALS = 2026, 30, 16, 20, 5
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


@dataclass(frozen=True, eq=False)
class Server(Runtime):
    """A model that reports some log-probabilities, rounded, as a server does."""

    inner: Runtime

    @property
    def name(self) -> str:
        return "the other runtime"

    def predict(self, prompts: Tensor, places: Tensor) -> Observed:
        seen = self.inner.predict(prompts, places)
        logs, ids = seen.logs.topk(REPORTED, -1)
        return Observed(logs.mul(10**DECIMALS).round().div(10**DECIMALS), ids)


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


def compared(other: Any, cached: bool = False) -> Parity:
    """Parity of the model with another runtime of it."""
    prompts, _ = sequences(PROMPTS, LENGTH, seed=10**6)
    local = open_model(FOLDER, dtype="float32")
    served = Server(ModelRuntime(other, cached=cached))
    return parity(ModelRuntime(local), served, prompts, local)


def judged(drawn: Drawn, dtype: Any) -> dict[str, Any] | None:
    """What is named of one fault; None if it changes nothing that the runtime predicts."""
    prompts, _ = sequences(PROMPTS, LENGTH, seed=10**6)
    sound = ModelRuntime(open_model(FOLDER, dtype=dtype)).predict(prompts, places_of(LENGTH))
    with pytest.MonkeyPatch.context() as patch:
        other = open_model(FOLDER, dtype=dtype)
        drawn.inject(other, patch)
        seen = Server(ModelRuntime(other)).predict(prompts, places_of(LENGTH))
    if float(divergence(seen, sound).mean()) <= UNNOTICED:
        return None
    local = open_model(FOLDER, dtype="float32")
    found = parity(ModelRuntime(local), Replay(seen), prompts, local)
    cause = found.causes.cause
    return {
        "fault": drawn.words,
        "code": drawn.code,
        "layers": list(drawn.layers),
        "dtype": dtype,
        "named": [] if cause is None else list(cause.codes),
        "right": cause is not None and drawn.code in cause.codes,
        "verdict": found.verdict,
    }


@dataclass(frozen=True, eq=False)
class Replay(Runtime):
    """What a runtime has reported, after its fault was taken out of this process."""

    seen: Observed

    @property
    def name(self) -> str:
        return "the other runtime"

    def predict(self, prompts: Tensor, places: Tensor) -> Observed:
        return self.seen


SOUND = (
    ("the same", "float32", "sdpa", False, 0),
    ("eager attention", "float32", "eager", False, 0),
    ("a cache of keys", "float32", "sdpa", True, 0),
    ("bfloat16", "bfloat16", "sdpa", False, 0),
    ("bfloat16, eager attention", "bfloat16", "eager", False, 0),
    ("float16", "float16", "sdpa", False, 0),
    ("weights in 8 bits by row", "float32", "sdpa", False, 8),
    ("weights in 4 bits by row", "float32", "sdpa", False, 4),
    ("bfloat16, a cache of keys", "bfloat16", "sdpa", True, 0),
)


def without_fault(words: str, dtype: Any, kernel: str, cached: bool, bits: int) -> dict[str, Any]:
    """What is said of a pair in which no cause may be named."""
    other: Any = open_model(FOLDER, dtype=dtype)
    other.config._attn_implementation = kernel
    for weight in (w for w in other.parameters() if bits and w.ndim == 2):
        size = weight.detach().abs().amax(1, keepdim=True) / (2 ** (bits - 1) - 1)
        weight.data = (weight.data / size).round() * size
    return _silent(words, other, cached)


def _silent(words: str, other: Any, cached: bool) -> dict[str, Any]:
    found = compared(other, cached)
    cause = found.causes.cause
    return {
        "pair": words,
        "answer": found.answer,
        "divergence": found.causes.none.divergence,
        "named": [] if cause is None else list(cause.codes),
        "verdict": found.verdict,
    }


def confusion(rows: list[dict[str, Any]]) -> dict[str, dict[str, int]]:
    """How often each code was named for each drawn one."""
    counts: dict[str, dict[str, int]] = {}
    for row in rows:
        named = " or ".join(row["named"]) or "none"
        counts.setdefault(row["code"], {}).setdefault(named, 0)
        counts[row["code"]][named] += 1
    return dict(sorted(counts.items()))


def matrix(record: dict[str, Any]) -> str:
    """The confusion matrix as a table of Markdown."""
    lines = ["| fault | drawn | named alone | named with its equal | another named | none named |",
             "| --- | --- | --- | --- | --- | --- |"]  # fmt: skip
    for code, counts in record["confusion"].items():
        kinds = [0, 0, 0, 0]
        for named, count in counts.items():
            others = code not in named.split(" or ")
            kinds[3 if named == "none" else 2 if others else int(named != code)] += count
        lines.append(f"| {code} | {sum(kinds)} | {' | '.join(str(kind) for kind in kinds)} |")
    return "\n".join(lines)


def stored(held: bool) -> dict[str, Any]:
    """What an earlier call of the held draw has finished."""
    if held and RESULTS.exists():
        return json.loads(RESULTS.read_text(encoding="utf-8"))
    return {"rows": [], "without_fault": []}


def store(rows: list[dict[str, Any]], silent: list[dict[str, Any]]) -> None:
    """Write what is finished, with the figures of all of it."""
    record = {
        "seed": HELD,
        "faults": len(rows),
        "named": sum(row["right"] for row in rows),
        "pairs_without_fault": len(silent),
        "pairs_without_a_named_cause": sum(not row["named"] for row in silent),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "confusion": confusion(rows),
        "rows": rows,
        "without_fault": silent,
    }
    RESULTS.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    """Draw, compare, print and store; a call that was cut off goes on where it stopped."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seed", type=int, default=HELD)
    parser.add_argument("--faults", type=int, default=DRAWN)
    given = parser.parse_args()
    transformers.logging.set_verbosity(logging.CRITICAL)
    held = (given.seed, given.faults) == (HELD, DRAWN)
    earlier, draw = stored(held), Draw(given.seed)
    done = list(earlier["rows"])
    rows: list[dict[str, Any]] = []
    while len(rows) < given.faults:
        drawn, dtype = draw.fault(), str(draw.rng.choice(["float32", "bfloat16"]))
        known = bool(done) and (done[0]["fault"], done[0]["dtype"]) == (drawn.words, dtype)
        row = done.pop(0) if known else judged(drawn, dtype)
        if row is None:
            say(f"drawn again, as it changes nothing: {drawn.code} {dtype}: {drawn.words}")
            continue
        rows.append(row)
        say(f"{'right' if row['right'] else 'WRONG'} {row['code']} {dtype}: {row['fault']} "
            f"{row['layers']}: {row['verdict']}")  # fmt: skip
        if held and len(rows) > len(earlier["rows"]):
            store(rows, earlier["without_fault"])
    silent = list(earlier["without_fault"])
    for pair in SOUND[len(silent) :]:
        silent.append(without_fault(*pair))
        say(f"{silent[-1]['pair']}: {silent[-1]['verdict']}")
        if held:
            store(rows, silent)
    say(f"{sum(row['right'] for row in rows)} of {len(rows)} faults named; a cause was named in "
        f"{sum(bool(row['named']) for row in silent)} of {len(silent)} pairs without a fault")  # fmt: skip


def say(line: str) -> None:
    """Print at once."""
    print(line, flush=True)


if __name__ == "__main__":
    main()
