"""Options, rows, records and timing that actions of `spectrope claims` share."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
import tyro

from spectrope.console import JsonOption, ScaleOption, chosen_seeds, complain, console, say
from spectrope.core import ConfigError, __version__, require
from spectrope.lab import Calibration, Estimation, Job, JobCost
from spectrope.study.claim import Claim
from spectrope.study.conditions import THROWN
from spectrope.study.rows import StudyRows
from spectrope.study.study import RESULTS, Study, harvest, place_of_rows

Results = Annotated[Path, tyro.conf.arg(name="rows", help="Folder of the results, with one file per scale.")]
Names = Annotated[
    tyro.conf.Positional[tuple[str, ...]],
    tyro.conf.arg(name="claim", help="Names or numbers of claims (default: all)."),
]
Conditions = Annotated[
    tuple[str, ...],
    tyro.conf.arg(
        name="condition", aliases=("--conditions",), help="Conditions under which to test the claims."
    ),
]
ConfirmatorySeeds = Annotated[
    tuple[str, ...],
    tyro.conf.arg(
        metavar="N|N:M ...",
        help="Confirmatory seeds, such as 0:6; most verdicts need at least 6.",
    ),
]
MOST_SEEDS = 200
ROUGH = (
    "These times are estimates of training from counts of operations and the speed of one product here, and "
    "may be wrong by a factor of 3; measuring heads comes on top. Without --dry-run, steps are timed."
)


def scope_of(scale: str) -> str:
    """What verdicts that are printed one by one apply to."""
    return (
        f"Verdicts at scale {scale}; they apply only to this scale. Each is tested by itself: the page of "
        "`claims report` also marks those that Holm's correction over all claims leaves open."
    )


def load_rows(folder: Path, scale: str) -> StudyRows:
    """The rows of a scale; those that cannot be read, or are withdrawn, are named on standard error.

    Raises:
        ConfigError: If the folder is a file.
    """
    if folder.is_file():
        raise ConfigError(f"--rows {folder} is a file; use --rows {folder.parent} for its folder.")
    rows = StudyRows.load(folder / f"{scale}.jsonl")
    for complaint in rows.complaints:
        complain(f"left out: {complaint}")
    if n := sum(map(len, rows.withdrawals.runs.values())):
        counted = "1 row from before a correction does" if n == 1 else f"{n} rows from before corrections do"
        complain(f"{counted} not count; the replication page lists them under Withdrawals and changes.")
    return rows


def existing_rows(folder: Path, scale: str) -> StudyRows:
    """The rows of a scale in a folder that there is, or those that were installed with the package.

    Raises:
        ConfigError: If another folder than `results` does not exist, or if `results` does not exist and the
            installation has no rows.
    """
    place = place_of_rows(folder)
    if place == folder:
        return load_rows(folder, scale)
    if place is not None:
        complain(f"no folder {RESULTS} here; these are the rows that spectrope {__version__} comes with.")
        return load_rows(place, scale).unwritten()
    if folder == RESULTS:
        raise ConfigError(
            f"no folder {RESULTS} here, and this installation comes with no rows; use --rows FOLDER."
        )
    raise ConfigError(f"--rows {folder} is not a folder; `spectrope claims run --rows {folder}` makes it.")


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Common options of all actions: claims, seeds and rows."""

    names: Names = ()
    scale: ScaleOption = "mini"
    seeds: ConfirmatorySeeds = ("0:6",)
    rows: Results = RESULTS
    json: JsonOption = False

    def study(self, claims: Sequence[Claim], conditions: Sequence[str] = tuple(THROWN)) -> Study:
        """The study of some claims on the seeds that are asked for.

        Raises:
            ConfigError: If there are none, or too many, or it would be a study of nothing.
        """
        seeds = chosen_seeds(self.seeds)
        require(1 <= len(seeds) <= MOST_SEEDS, self, "seeds", f"between 1 and {MOST_SEEDS} seeds")
        return Study(tuple(claims), tuple(dict.fromkeys(conditions)), self.scale, seeds)


@contextmanager
def costing(device: torch.device, threads: int, *, rough: bool) -> Iterator[Callable[[Job], JobCost]]:
    """What tells the cost of a job on some threads: from a few steps of its kind, or roughly but at once."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        if rough:
            yield Estimation(device)
        else:
            with console.status("Timing a few steps of each kind of run"):
                yield Calibration(device)
    finally:
        torch.set_num_threads(before)


def gather(root: Path, study: Study, rows: StudyRows) -> int:
    """Take the rows of finished runs, and of those that these ask for; say and return how many."""
    total, complaints = harvest(root, {job.experiment for job in study.jobs(rows)}, rows)
    n_new = total
    while n_new:
        n_new, complaints = harvest(root, {job.experiment for job in study.jobs(rows)}, rows)
        total += n_new
    for complaint in complaints:
        complain(f"left out: {complaint}")
    say(f"{total} new row{'s' * (total != 1)} from {root}; {len(rows)} in all.")
    return total


def verdict_records(study: Study, rows: StudyRows) -> list[dict[str, Any]]:
    """The verdict of each claim under each condition, as JSON-ready values."""
    return [
        {
            "claim": claim.number,
            "kind": claim.kind,
            "title": claim.title,
            "scale": study.scale,
            "condition": condition,
            "verdict": verdict.word,
            "reason": verdict.reason,
            "n_seeds": verdict.n_seeds,
        }
        for (claim, condition), verdict in zip(study.cases(), study.verdicts(rows), strict=True)
    ]
