"""Draw docs/images/lengths.svg: accuracy by length of twelve encodings on Task 1 at `mini`.

    python -m tools.lengths --workers 2 --seeds 3

Finished runs are read from `runs/lengths`, so that an interrupted call goes on where it was. Heads are not
ablated. The scores behind the figure are written beside it, as docs/images/lengths.csv.
"""

import argparse
from pathlib import Path

import polars as pl

import spectrope as sp
from spectrope.lab import Job, comparison_plan, extrapolate

ENCODINGS = "nope sinusoidal t5 alibi kerple_log rope xpos pope grape fox cope wavelet"
FACTORS = (1, 1.5, 2, 4, 8)
EXAMPLES = 500  # Of each length and run.
DRAWN = Path("docs/images/lengths.svg")
COLUMNS = ("scaling", "factor", "length", "accuracy", "low", "high", "loss", "loss_low", "loss_high", "note")


def main() -> None:
    """Train what is not trained yet, score it by length, draw the figure and write the scores."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=Path, default=Path("runs/lengths"))
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=3)
    chosen = parser.parse_args()
    plan = comparison_plan(ENCODINGS.split(), "distance", range(chosen.seeds))
    runs = sp.execute([Job(one, ()) for one in plan], root=chosen.runs, workers=chosen.workers)
    scores = [
        extrapolate(run, FACTORS, examples=EXAMPLES).select(
            pl.lit(run.config["encoding_name"]).alias("encoding"),
            pl.lit(run.config["seed"]).alias("seed"),
            *COLUMNS,
        )
        for run in runs
    ]
    pl.concat(scores).sort("encoding", "seed", "factor").write_csv(
        DRAWN.with_suffix(".csv"), float_precision=6
    )
    sp.figure(runs, "lengths").save(DRAWN)


if __name__ == "__main__":
    main()
