"""`spectrope runs`: list the runs of a folder, or verify their files."""

from dataclasses import dataclass
from typing import Annotated

import polars as pl
import tyro

from spectrope.console import ROOT, JsonOption, RunsRoot, complain, frame, print_json, show
from spectrope.core import ConfigError
from spectrope.front import CheckedRuns, check_runs, listing


@dataclass(frozen=True, kw_only=True)
class Runs:
    """List the runs of a folder, or verify their files.

    Examples:
    $ spectrope runs
    $ spectrope runs --check --runs elsewhere/runs
    """

    runs: RunsRoot = ROOT
    check: Annotated[bool, tyro.conf.arg(help="Verify the digest of every file.")] = False
    repair: Annotated[
        bool, tyro.conf.arg(help="With --check: move damaged runs aside, so that they can be trained again.")
    ] = False
    json: JsonOption = False

    def run(self) -> int:
        """Print a row per run, and a line for each folder that cannot be read.

        Returns:
            0; with a check: 1 if damaged runs remain, and 3 if none remains but some file has no digest.

        Raises:
            ConfigError: If a repair is asked for without a check.
        """
        if self.repair and not self.check:
            raise ConfigError("Runs.repair must come with check; got repair alone. Add --check.")
        if self.check:
            checked = check_runs(self.runs, repair=self.repair)
            show(checked)
            if self.json:
                print_json(checked.to_frame().to_dicts())
            return _answer(checked)
        self._list()
        return 0

    def _list(self) -> None:
        listed, broken = listing(self.runs)
        held_out = pl.col("test").map_elements("{:.1f}".format, return_dtype=pl.String)
        result = pl.when("finished").then(held_out).otherwise(pl.lit("unfinished")).alias("held-out %")
        names = ["run", "task", "encoding", "scale", "condition", "seed"]
        told = [name for name in ("epochs", "n_train") if listed[name].n_unique() > 1]
        precisions, once = listed["precision"].drop_nulls().unique().to_list(), list[str]()
        if listed["settings"].str.len_chars().sum():
            once = [name for name in ("scale", "condition") if listed[name].n_unique() == 1]
            names.insert(names.index("encoding") + 1, "settings")
            names = [name for name in names if listed[name].null_count() < len(listed)]
        # What is the same for all is said once, so that the table fits 80 columns.
        said = [f"{name} {listed[name][0]}" for name in once if name in names]
        if len(precisions) > 1:
            names.append("precision")
        else:
            said += [f"matrix products in {one}" for one in precisions]
        shown = listed.select(*(name for name in names if name not in once), result, *told)
        frame(", ".join(said), shown)
        if self.json:
            print_json(listed.to_dicts())
        for path, reason in broken:
            complain(f"{path.name}: {reason}")


def _answer(checked: CheckedRuns) -> int:
    if checked.count("damaged") > len(checked.moved):
        return 1
    return 3 if checked.count("unverified") else 0
