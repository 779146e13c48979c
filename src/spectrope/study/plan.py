"""The preregistered plan for scale `mid`, which verdicts, audit and tests read."""

import re
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("preregistration.toml")
DEVIATIONS = Path(__file__).with_name("deviations.toml")
PILOTED = ("distance", "counting")  # Tasks whose learning rate and epochs pilots choose.
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


def planned_sections() -> list[str]:
    """The sections that plan runs of a scale, in the plan's order."""
    return [name for name, section in plan().items() if "scale" in section]


def planned_scales() -> list[str]:
    """The scales that the plan covers, in its order."""
    return list(dict.fromkeys(section["scale"] for section in plan().values() if "scale" in section))


def pilot_file(section: Mapping[str, Any]) -> str:
    """Name of the file of rows of a scale's pilots; empty if its section names none."""
    return Path(section.get("pilots", {}).get("file", "")).name


def has_pilots(section: Mapping[str, Any]) -> bool:
    """Whether the section of a scale, of any version of the plan, leaves a choice to pilots."""
    return not section.keys().isdisjoint(("order", "pilots"))


def is_chosen(section: Mapping[str, Any]) -> bool:
    """Whether the section of a scale, of any version of the plan, has the learning rate and epochs of each
    task."""
    return all(_is_determined(section.get("chosen", {}).get(task, {})) for task in PILOTED)


def _is_determined(one: Mapping[str, Any]) -> bool:
    rate, epochs = one.get("learning_rate"), one.get("epochs")
    return isinstance(rate, float) and rate > 0 and isinstance(epochs, int) and epochs > 0


def unplanned(claim: str, scale: str) -> str:
    """Why the runs of a planned scale lack what decides a claim; empty if they do not."""
    return plan()["claims"].get(claim, {}).get("unplanned", {}).get(scale, "")


def headline_of(claim: str) -> str | None:
    """The quantity of the part that decides a claim; None if the plan does not know the claim."""
    planned = plan()["claims"].get(claim)
    return None if planned is None else planned["headline"]
