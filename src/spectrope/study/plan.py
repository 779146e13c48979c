"""The preregistered plan for scale `mid`, which verdicts, audit and tests read."""

import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("preregistration.toml")
DEVIATIONS = Path(__file__).with_name("deviations.toml")


@cache
def plan() -> Mapping[str, Any]:
    """The plan, as its file has it."""
    return tomllib.loads(FILE.read_text(encoding="utf-8"))


def deviations() -> Sequence[Mapping[str, str]]:
    """Restarts and changes of the first edition, each with its claims, and what had been seen."""
    return tomllib.loads(DEVIATIONS.read_text(encoding="utf-8"))["deviation"]


def planned_times(scale: str, claim: str) -> int:
    """How many seeds the plan has for each of a claim's; 1 unless it says more."""
    return plan().get(scale, {}).get("times", {}).get(claim, 1)


def added_seeds(scale: str) -> range:
    """Seeds of a planned scale beyond those of every claim, which some headline part needs."""
    if scale not in plan():
        return range(0)
    n = len(plan()[scale]["seeds"])
    return range(n, n * max(plan()[scale].get("times", {"": 1}).values()))


def headline_of(claim: str) -> str | None:
    """The quantity of the part that decides a claim; None if the plan does not know the claim."""
    planned = plan()["claims"].get(claim)
    return None if planned is None else planned["headline"]
