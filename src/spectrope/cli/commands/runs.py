"""`spectrope runs`: what lies in a folder of runs."""

from dataclasses import dataclass

import polars as pl

from spectrope.console import ROOT, JsonOption, RunsRoot, complain, frame, print_json
from spectrope.front import listing


@dataclass(frozen=True, kw_only=True)
class Runs:
    """List the runs of a folder, finished or not.

    Examples:
    $ spectrope runs
    $ spectrope runs --runs elsewhere/runs
    """

    runs: RunsRoot = ROOT
    json: JsonOption = False

    def run(self) -> None:
        """Print a row per run, and a line for each folder that cannot be read."""
        listed, broken = listing(self.runs)
        held_out = pl.col("test").map_elements("{:.1f}".format, return_dtype=pl.String)
        result = pl.when("finished").then(held_out).otherwise(pl.lit("unfinished")).alias("held-out %")
        frame("", listed.select("run", "task", "encoding", "scale", "condition", "seed", result))
        if self.json:
            print_json(listed.to_dicts())
        for path, reason in broken:
            complain(f"{path.name}: {reason}")
