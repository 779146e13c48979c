"""How many head-forwards the adaptive sweep saves on trained models, and how well screening orders the heads.

`python -m benchmarks.adaptive RUN ...` takes finished run folders; without any, it trains RoPE and T5 on the
distance task at scale mini first. Every model is swept exactly over 30,000 examples that it has never seen.
The gate: each adaptive interval, at 95 % for all heads together, covers the exact drop.
"""

import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from benchmarks.harness import store

from spectrope.core.device import choose_device
from spectrope.lab.ablation.adaptive import adaptive_sweep
from spectrope.lab.ablation.screening import screen
from spectrope.lab.ablation.sweep import Sweep, sweep
from spectrope.lab.engines.local import execute
from spectrope.lab.runs import experiment_of, load_model
from spectrope.lab.training.scales import experiment
from spectrope.models.decoder import Decoder
from spectrope.stats import spearman
from spectrope.stats.sequential import Aim, TargetPrecision, Threshold
from spectrope.store import Run, load_run
from spectrope.tasks.base import Batch

EXAMPLES, SCREENED, UNSEEN_SEED = 30_000, 2_000, 10_007
AIMS: dict[str, tuple[Aim, str]] = {
    "|drop| > 5 points": (Threshold(0.05), ">= 10x"),
    "drop to 0.5 points": (TargetPrecision(0.005), ""),
}


@dataclass(frozen=True)
class Row:
    """Head-forwards saved on one model for one question."""

    label: str
    saving: float
    head_forwards: int
    exact_head_forwards: int
    goal: str


def runs(folders: list[str], root: Path) -> list[Run]:
    """The runs named, or new ones."""
    if folders:
        return [load_run(Path(folder)) for folder in folders]
    return execute([experiment("distance", name) for name in ("rope", "t5")], root)


def rows(run: Run) -> Iterator[Row]:
    """Every question about one model; what screening says of it is printed on the way."""
    made = experiment_of(run)
    model, label = load_model(run, choose_device()), f"{made.task.kind}, {run.config['encoding_name']}"
    data = made.task.build().sample(EXAMPLES, seed=UNSEEN_SEED)
    exact = sweep(model, data)
    for question, (aim, goal) in AIMS.items():
        yield measured(model, data, exact, aim, Row(f"{label}: {question}", 0.0, 0, exact.ablated.size, goal))
    print(f"{label}: Spearman of screening with the exact drops {agreement(model, data, exact)}")


def measured(model: Decoder, data: Batch, exact: Sweep, aim: Aim, row: Row) -> Row:
    """One adaptive sweep, gated."""
    found = adaptive_sweep(model, data, aim)
    drops = [head.drop for head in exact.drops()]
    wrong = [
        head
        for head, drop in zip(found.drops, drops, strict=True)
        if not head.drop.low - 1e-9 <= drop <= head.drop.high + 1e-9
    ]
    assert not wrong, f"{row.label}: intervals miss the exact drop: {wrong}"
    done = Row(row.label, found.saving, found.head_forwards, row.exact_head_forwards, row.goal)
    counts = f"{done.head_forwards:,} of {done.exact_head_forwards:,} head-forwards"
    print(f"{done.label:>44} {done.saving:6.1f}x  {counts}  {done.goal}")
    return done


def agreement(model: Decoder, data: Batch, exact: Sweep) -> str:
    """Rank correlation of the first-order estimates with the exact drops."""
    estimates = screen(model, data[:SCREENED]).loss_increase_estimate
    rho = spearman(estimates.ravel(), np.array([head.drop for head in exact.drops()]))
    return "undefined" if rho is None else f"{rho:.2f}"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as root:
        store("adaptive", [asdict(row) for run in runs(sys.argv[1:], Path(root)) for row in rows(run)])
