"""The preregistered plan for scale `mid`, which verdicts, audit and tests read."""

import re
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("preregistration.toml")
DEVIATIONS = Path(__file__).with_name("deviations.toml")
HASH = re.compile(r"[0-9a-f]{7,40}")


@cache
def plan() -> Mapping[str, Any]:
    """The plan, as its file has it."""
    return tomllib.loads(FILE.read_text(encoding="utf-8"))


def deviations() -> Sequence[Mapping[str, str]]:
    """Restarts and changes of the first edition, each with its claims, and what had been seen."""
    return tomllib.loads(DEVIATIONS.read_text(encoding="utf-8"))["deviation"]


def is_named(commit: str | None) -> bool:
    """Whether this is the name of a commit, and not of code that differs from one or comes without any."""
    return bool(HASH.fullmatch(commit or ""))


def planned_times(scale: str, claim: str, condition: str) -> int:
    """The factor by which a claim has more seeds than others under a condition; 1 unless the plan says so."""
    return plan().get(scale, {}).get("times", {}).get(condition, {}).get(claim, 1)


def planned_scales() -> list[str]:
    """The scales that the plan covers, in its order."""
    return list(dict.fromkeys(section["scale"] for section in plan().values() if "scale" in section))


def pilot_file(scale: str) -> str:
    """Name of the file of rows of a scale's pilots; empty if it has none."""
    return Path(plan().get(scale, {}).get("pilots", {}).get("file", "")).name


def is_chosen(section: Mapping[str, Any]) -> bool:
    """Whether the section of a scale leaves no learning rate and no number of epochs to its pilots.

    Args:
        section: Of any version of the plan. Without an order of runs or pilots, there is nothing to choose.
    """
    if section.keys().isdisjoint(("order", "pilots")):
        return True
    chosen, tasks = section.get("chosen", {}), section.get("examples", {})
    determined = (chosen.get(task, {}).keys() >= {"learning_rate", "epochs"} for task in tasks)
    return bool(chosen) and all(determined)


def unplanned(claim: str, scale: str) -> str:
    """Why the runs of a planned scale lack what decides a claim; empty if they do not."""
    return plan()["claims"].get(claim, {}).get("unplanned", {}).get(scale, "")


def headline_of(claim: str) -> str | None:
    """The quantity of the part that decides a claim; None if the plan does not know the claim."""
    planned = plan()["claims"].get(claim)
    return None if planned is None else planned["headline"]
