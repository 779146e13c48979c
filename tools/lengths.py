"""Draw docs/images/lengths.svg: accuracy by length of twelve encodings on Task 1 at `mini`, three seeds each.

    python -m tools.lengths --workers 2 --seeds 3

The scores behind the figure stand beside it, in docs/images/lengths.csv. Encodings and seeds that it has
already are not trained again: delete the file to start afresh. Finished runs are kept in `runs/lengths`, so
that an interrupted call goes on where it was. Heads are not ablated.
"""

import argparse
from pathlib import Path

import polars as pl

import spectrope as sp
from spectrope.figures import FIGURES, write_spec
from spectrope.figures.spec import file_spec
from spectrope.figures.tables import Tables
from spectrope.lab import Experiment, Job, comparison_plan, extrapolate
from spectrope.store import Run

ENCODINGS = "nope sinusoidal t5 alibi kerple_log rope xpos pope grape fox cope wavelet"
FACTORS = (1, 1.5, 2, 4, 8)
EXAMPLES = 500  # Of each length and run.
DRAWN = Path("docs/images/lengths.svg")
SCORES = DRAWN.with_suffix(".csv")
COLUMNS = ("scaling", "factor", "length", "accuracy", "low", "high", "loss", "loss_low", "loss_high", "note")


def main() -> None:
    """Train and score what the file of scores lacks, seed by seed, then draw it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=Path, default=Path("runs/lengths"))
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=3)
    chosen = parser.parse_args()
    for seed in range(chosen.seeds):
        plan = [one for one in comparison_plan(ENCODINGS.split(), "distance", [seed]) if not is_scored(one)]
        runs = sp.execute([Job(one, ()) for one in plan], root=chosen.runs, workers=chosen.workers)
        add([scores(run) for run in runs])
    write_spec(drawn(known()), DRAWN)


def is_scored(one: Experiment) -> bool:
    """Whether the file has the scores of an encoding and a seed."""
    return SCORES.exists() and (one.encoding_name, one.seed) in known()["encoding", "seed"].rows()


def known() -> pl.DataFrame:
    """The scores of the file."""
    return pl.read_csv(SCORES, schema_overrides={"note": pl.String})


def scores(run: Run) -> pl.DataFrame:
    """The scores of a run at each length."""
    named = {"encoding": run.config["encoding_name"], "seed": run.config["seed"]}
    found = extrapolate(run, FACTORS, examples=EXAMPLES)
    return found.select(*(pl.lit(value).alias(name) for name, value in named.items()), *COLUMNS)


def add(frames: list[pl.DataFrame]) -> None:
    """Add scores to the file."""
    if frames:
        every = pl.concat([known(), *frames] if SCORES.exists() else frames, how="vertical_relaxed")
        every.sort("encoding", "seed", "factor").write_csv(SCORES, float_precision=6)


def drawn(found: pl.DataFrame) -> dict[str, object]:
    """The figure of some scores."""
    rows = found.with_columns(pl.lit("Task 1").alias("setting"))
    runs = rows.select("setting", "encoding", "seed").unique(maintain_order=True)
    empty = pl.DataFrame()
    tables = Tables(sources=[], runs=runs, metrics=empty, ablation=empty, extrapolation=rows)
    return file_spec(FIGURES["lengths"](), tables)


if __name__ == "__main__":
    main()
