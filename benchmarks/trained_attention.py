"""How much of a trained run's attention a certificate could leave out, at a length it has never seen.

`python -m benchmarks.trained_attention RUN` takes unrotated queries and keys of held-out examples, draws a
sequence of 65,536 from them with replacement, and rotates it. For the last queries of each head it prints:

- the mean half-range of a query's logits, which no shift of that query's logits makes smaller;
- the median number of keys that carry 99.5 % of its weight, which exact handling of large entries must find;
- the share of keys within a window of +-1.1 logits, the most that degree 3 serves at 1e-2;
- the share of keys in clusters of 16 whose bound does not rule them out at 1e-2, for single queries and for
  blocks of 16 similar ones. Clusters are made by halving along the direction of largest spread in the metric
  of the queries' second moments; the bound of a cluster is the lesser of that of its ball and of its box.

`python -m benchmarks.trained_attention RUN shift` prints each head's bound as a plan has it, the largest
half-range that boxes around groups of 64 keys certify once each query has its shift, and the largest one
that the best shift leaves to the last queries.

`python -m benchmarks.trained_attention RUN serve` makes the plan of each head from such a sequence, without
assuming anything of its range, and computes what it serves: the certified and the measured error on random
values, and the processor time of the plan, of the planned kernel and of torch's exact one, each run once.
"""

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from spectrope.attention import attention
from spectrope.encodings import Context
from spectrope.fast import AttentionPlan, plan, planned_attention
from spectrope.fast.certificate import bound_logits
from spectrope.fast.clock import own_seconds
from spectrope.fast.rotation import rotated
from spectrope.lab import LayerHeads, TrainedSubject, capture_heads, longest
from spectrope.store import load_run

QUERIES, LEAF, BLOCK, SAMPLED, GROUP = 96, 16, 16, 16, 64
WINDOW, LEFT_OUT = 1.1, 5e-3  # Left out: half of the tolerance, since an output moves by twice the share.


@dataclass(frozen=True)
class HeadReach:
    """What a certificate could leave out of one head."""

    layer: int
    head: int
    half_range: float
    keys: int
    in_window: float
    read_by_query: float
    read_by_block: float


@dataclass(frozen=True)
class ShiftedHead:
    """The range of one head's logits, in logit units, by its own shift of each query's logits."""

    layer: int
    head: int
    planned: float
    certified: float
    least: float


@dataclass(frozen=True)
class ServedHead:
    """One head's plan at the length of the sequence, its error, and processor times in seconds."""

    layer: int
    head: int
    choice: str
    reach: float
    degree: int | None
    features: int | None
    certified: float | None
    measured: float | None
    planning: float
    fast: float | None
    exact: float


def drawn(layer: LayerHeads, tokens: int, length: int) -> Context:
    """Unrotated queries and keys, drawn with replacement from all examples."""
    ctx, draw = layer.ctx, torch.Generator().manual_seed(layer.layer)
    q, k = (x[:, :, :tokens].transpose(0, 1).flatten(1, 2) for x in (ctx.q, ctx.k))
    some = torch.randint(q.shape[1], (length,), generator=draw)
    pos = torch.arange(length)[None]
    return Context(q[:, some][None], k[:, some][None], pos, pos)


def long_sequence(layer: LayerHeads, tokens: int, length: int) -> tuple[Tensor, Tensor]:
    """Rotated queries and keys, (h, length, d)."""
    sequence = drawn(layer, tokens, length)
    turned = rotated(sequence, layer.encoding)
    return turned.q[0], turned.k[0]


def shift(layer: int, head: int, q: Tensor, k: Tensor) -> ShiftedHead:
    """What a shift of each query's logits makes of the range of one head."""
    planned = bound_logits(q[None, None], k[None, None]).reach_bound
    members = k[neighbours(k, GROUP)]
    low, high = members.amin(1), members.amax(1)
    up, down = q.clamp(min=0), q.clamp(max=0)
    largest, smallest = up @ high.T + down @ low.T, up @ low.T + down @ high.T
    certified = (largest.amax(1) - smallest.amin(1)).max() / 2
    logits = q[-QUERIES:] @ k.T
    least = (logits.amax(1) - logits.amin(1)).max() / 2
    return ShiftedHead(layer, head, float(planned), float(certified), float(least))


def serve(layer: LayerHeads, sequence: Context, head: int) -> ServedHead:
    """Plan and compute one head of a layer."""
    ctx = sequence.of_heads(slice(head, head + 1))
    v = torch.randn(ctx.k.shape, generator=torch.Generator().manual_seed(head))
    results: dict[str, Tensor] = {}
    plans: list[AttentionPlan] = []
    planning = own_seconds(lambda: plans.append(plan(ctx, layer.encoding, causal=layer.causal)), v.device)
    [chosen] = plans[0].heads
    impls = {"exact": lambda: attention(ctx, v, layer.encoding, causal=layer.causal, impl="fused")}
    if chosen.choice != "exact":
        impls["fast"] = lambda: planned_attention(ctx, v, layer.encoding, plans[0])
    times = {
        name: own_seconds(lambda call=call, name=name: results.update({name: call()}), v.device)
        for name, call in impls.items()
    }
    proof = chosen.certificate if "fast" in times else None
    return ServedHead(
        layer.layer,
        head,
        chosen.choice,
        chosen.reach_bound,
        proof and proof.polynomial.degree,
        proof and proof.features,
        proof and proof.error_bound,
        proof and float((results["fast"] - results["exact"]).abs().max() / v.abs().max()),
        planning,
        times.get("fast"),
        times["exact"],
    )


def neighbours(x: Tensor, size: int) -> Tensor:
    """Indices in groups of `size` neighbours; both numbers are powers of two."""
    order = torch.arange(len(x))[None]
    while order.shape[1] > size:
        centred = x[order] - x[order].mean(1, keepdim=True)
        along = torch.linalg.eigh(centred.mT @ centred)[1][:, :, -1:]
        order = order.gather(1, (centred @ along).squeeze(-1).argsort(1)).view(2 * len(order), -1)
    return order


def reach(layer: int, head: int, q: Tensor, k: Tensor) -> HeadReach:
    """The measures of one head."""
    logits = (q[-QUERIES:] @ k.T).double()
    ranges = (logits.amax(1) - logits.amin(1)) / 2
    weights = logits.softmax(1).sort(1, descending=True)[0].cumsum(1)
    ascending = logits.sort(1)[0]
    ends = torch.searchsorted(ascending, ascending + 2 * WINDOW)
    window = (ends - torch.arange(len(k))).amax(1).double().mean() / len(k)
    by_query, by_block = read_shares(q, k)
    keys = int(((weights < 1 - LEFT_OUT).sum(1) + 1).median())
    return HeadReach(layer, head, float(ranges.mean()), keys, float(window), by_query, by_block)


def read_shares(q: Tensor, k: Tensor) -> tuple[float, float]:
    """Shares of keys that a query, and a block of similar queries, has to read."""
    values, vectors = torch.linalg.eigh(q.T @ q / len(q))
    metric = vectors * (values.clamp(min=0) + 1e-3 * values[-1]).sqrt()
    q, k = torch.linalg.solve(metric, q.T).T, k @ metric
    members = k[neighbours(k, LEAF)]
    centre = members.mean(1)
    radius = (members - centre[:, None]).norm(dim=-1).amax(1)
    low, high = members.amin(1), members.amax(1)
    late = q[-(2**14) :]
    blocks = neighbours(late, BLOCK)
    some = torch.randperm(len(blocks), generator=torch.Generator().manual_seed(0))[:SAMPLED]
    single, shared = [], []
    for block in blocks[some]:
        queries = late[block]
        ball = queries @ centre.T + queries.norm(dim=1)[:, None] * radius
        box = queries.clamp(min=0) @ high.T + queries.clamp(max=0) @ low.T
        total = (queries @ k.T).double().logsumexp(1)
        share = LEAF * (torch.minimum(ball, box).double() - total[:, None]).exp()
        single.append((share.sort(1)[0].cumsum(1) > LEFT_OUT).double().mean())
        shared.append((share.amax(0).sort()[0].cumsum(0) > LEFT_OUT).double().mean())
    return float(torch.stack(single).mean()), float(torch.stack(shared).mean())


def layers_of(run: Path) -> tuple[list[LayerHeads], int]:
    """The heads of a run on held-out examples, and the tokens that all of these have."""
    subject = TrainedSubject.of(load_run(run), torch.device("cpu"))
    batch, tokens = longest(subject.held_out, 64)
    layers: list[LayerHeads] = []
    capture_heads(subject.model, batch, layers.append)
    return layers, tokens


@torch.no_grad()
def heads(
    measure: Callable[[int, int, Tensor, Tensor], HeadReach | ShiftedHead], run: Path, length: int
) -> Iterator[HeadReach | ShiftedHead]:
    """A measure of every head of a run, from its layer, number, queries and keys."""
    layers, tokens = layers_of(run)
    for layer in layers:
        q, k = long_sequence(layer, tokens, length)
        for head in range(len(q)):
            yield measure(layer.layer, head, q[head], k[head])


@torch.no_grad()
def served(run: Path, length: int) -> Iterator[ServedHead]:
    """What the plan of every head of a run does."""
    layers, tokens = layers_of(run)
    for layer in layers:
        sequence = drawn(layer, tokens, length)
        for head in range(sequence.q.shape[1]):
            yield serve(layer, sequence, head)


MODES: dict[str, Callable[[Path, int], Iterator[HeadReach | ShiftedHead | ServedHead]]] = {
    "reach": partial(heads, reach),
    "shift": partial(heads, shift),
    "serve": served,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Print, and store if asked, a row per head."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("what", nargs="?", choices=MODES, default="reach")
    parser.add_argument("--length", type=int, default=65_536)
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args(arguments)
    found = []
    for one in MODES[chosen.what](chosen.run, chosen.length):
        found.append(asdict(one))
        shown = {name: f"{x:.3g}" if isinstance(x, float) else x for name, x in found[-1].items()}
        print(" ".join(f"{name} {value}" for name, value in shown.items()), flush=True)
    if chosen.out:
        chosen.out.write_text(json.dumps({"length": chosen.length, "heads": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
