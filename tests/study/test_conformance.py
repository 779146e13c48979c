"""The conformance table: its fields and tests exist, and its values are those of the conditions."""

import json
import re
from collections.abc import Mapping
from functools import reduce
from pathlib import Path

import pytest

from spectrope.core.config import to_dict
from spectrope.lab.ablation.protocols import PROTOCOLS
from spectrope.lab.experiments import written
from spectrope.lab.measures.base import MEASURES
from spectrope.lab.training.scales import experiment
from spectrope.study.conditions import SWITCHES, THROWN
from spectrope.study.quantities import own_ablation

ROOT = Path(__file__).parents[2]
ABSENT = "—"
LINES = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (ROOT / "docs" / "explanation" / "conformance.md").read_text().splitlines()
    if re.match(r"\| R\d+ \|", line)
]
EACH = pytest.mark.parametrize("line", LINES, ids=lambda line: f"{line[0]} {line[3]} {line[4].strip('`')}")


def fields_of(encoding: str, condition: str) -> dict[str, object]:
    """An experiment of Task 1 with the protocol that judges it, as JSON-ready values."""
    one = experiment("distance", encoding, condition=condition)
    protocol = PROTOCOLS[MEASURES[own_ablation(one)].protocol]
    return written(one) | {"model": whole(one.model), "ablation": to_dict(protocol)}


def whole(config: object) -> object:
    """All fields, those that are left out of what is written included."""
    if isinstance(config, tuple):
        return [whole(item) for item in config]
    if not hasattr(config, "__dataclass_fields__"):
        return config
    kind = {"kind": config.kind} if hasattr(config, "kind") else {}
    return kind | {name: whole(getattr(config, name)) for name in config.__dataclass_fields__}


def value_at(fields: object, path: str) -> str:
    def step(value: object, name: str) -> object:
        if isinstance(value, Mapping):
            return value.get(name, ABSENT)
        return value[int(name)] if isinstance(value, list) and int(name) < len(value) else ABSENT

    found = reduce(step, path.split("."), fields)
    return ABSENT if found == ABSENT else f"`{json.dumps(found)}`"


def test_every_divergence_has_a_line():
    assert list(dict.fromkeys(line[0] for line in LINES)) == [f"R{i}" for i in range(1, 18)]


@EACH
def test_a_line_has_the_values_of_the_conditions(line):
    encoding, path, *expected = line[3:8]
    path = path.strip("`")
    found = [value_at(fields_of(encoding, condition), path) for condition in THROWN]
    assert found == expected
    assert found != [ABSENT] * len(THROWN)


@EACH
def test_a_line_names_a_test_that_there_is(line):
    path, *names = line[8].strip("`").split("::")
    source = (ROOT / "tests" / path).read_text()
    assert all(re.search(rf"^ *(def|class) {name}\b", source, re.MULTILINE) for name in names)
    assert names[-1].startswith("test_")


def test_every_switch_changes_a_field_that_the_table_names():
    for name in SWITCHES:
        lines = [line for line in LINES if line[0] == name]
        assert any(line[5] != line[7] for line in lines), name
