"""How much of a trained run's attention a certificate could leave out, at a length it has never seen.

`python -m benchmarks.trained_attention RUN` takes unrotated queries and keys of held-out examples, draws a
sequence of 65,536 from them with replacement, and rotates it. For the last queries of each head it prints:

- the mean half-range of a query's logits, which no shift of that query's logits makes smaller;
- the median number of keys that carry 99.5 % of its weight, which exact handling of large entries must find;
- the share of keys within a window of +-1.1 logits, the most that degree 3 serves at 1e-2;
- the share of keys in clusters of 16 whose bound does not rule them out at 1e-2, for single queries and for
  blocks of 16 similar ones. Clusters are made by halving along the direction of largest spread in the metric
  of the queries' second moments; the bound of a cluster is the lesser of that of its ball and of its box.
"""

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor

from spectrope.encodings.base import Context
from spectrope.lab import LayerHeads, TrainedSubject, capture_heads, longest
from spectrope.store import load_run

QUERIES, LEAF, BLOCK, SAMPLED = 96, 16, 16, 16
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


def long_sequence(layer: LayerHeads, tokens: int, length: int) -> tuple[Tensor, Tensor]:
    """Rotated queries and keys, (h, length, d), drawn with replacement from all examples."""
    ctx, draw = layer.ctx, torch.Generator().manual_seed(layer.layer)
    q, k = (x[:, :, :tokens].transpose(0, 1).flatten(1, 2) for x in (ctx.q, ctx.k))
    some = torch.randint(q.shape[1], (length,), generator=draw)
    pos = torch.arange(length)[None]
    sequence = Context(q[:, some][None], k[:, some][None], pos, pos)
    turned = layer.encoding.rotate(layer.encoding.scaled(sequence.q) * sequence.scale, pos, "query")
    return turned[0], layer.encoding.rotate(sequence.k, pos, "key")[0]


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


@torch.no_grad()
def heads(run: Path, length: int) -> Iterator[HeadReach]:
    """The measures of every head of a run."""
    subject = TrainedSubject.of(load_run(run), torch.device("cpu"))
    batch, tokens = longest(subject.held_out, 64)
    layers: list[LayerHeads] = []
    capture_heads(subject.model, batch, layers.append)
    for layer in layers:
        q, k = long_sequence(layer, tokens, length)
        for head in range(len(q)):
            yield reach(layer.layer, head, q[head], k[head])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--length", type=int, default=65_536)
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    found = []
    for one in heads(chosen.run, chosen.length):
        found.append(asdict(one))
        print(" ".join(f"{name} {value:.3g}" for name, value in found[-1].items()), flush=True)
    if chosen.out:
        chosen.out.write_text(json.dumps({"length": chosen.length, "heads": found}, indent=1) + "\n")
