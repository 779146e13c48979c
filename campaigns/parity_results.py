"""The stored rows of `python -m campaigns.parity`, and what is counted of them."""

import json
import re
from pathlib import Path
from typing import Any

import torch
import transformers

RESULTS = Path(__file__).with_name("results") / "parity.json"
HELD = 2026  # The seed of the held draw.
NAMED = re.compile(r"Acts like [^;]*?(?: in layer (?P<layers>[\d, ]+))?(?: from position \d+)? \(SPE")


def confusion(rows: list[dict[str, Any]]) -> dict[str, dict[str, int]]:
    """How often each code was named for each drawn one."""
    counts: dict[str, dict[str, int]] = {}
    for row in rows:
        named = " or ".join(row["named"]) or "none"
        counts.setdefault(row["code"], {}).setdefault(named, 0)
        counts[row["code"]][named] += 1
    return dict(sorted(counts.items()))


def matrix(record: dict[str, Any]) -> str:
    """The confusion matrix as a table of Markdown."""
    lines = ["| fault | drawn | named alone | named with an equivalent | another named | none named |",
             "| --- | --- | --- | --- | --- | --- |"]  # fmt: skip
    for code, counts in record["confusion"].items():
        kinds = [0, 0, 0, 0]
        for named, count in counts.items():
            others = code not in named.split(" or ")
            kinds[3 if named == "none" else 2 if others else int(named != code)] += count
        lines.append(f"| {code} | {sum(kinds)} | {' | '.join(str(kind) for kind in kinds)} |")
    return "\n".join(lines)


def stored(held: bool) -> dict[str, Any]:
    """What an earlier call of the held draw has finished."""
    if held and RESULTS.exists():
        return json.loads(RESULTS.read_text(encoding="utf-8"))
    return {"rows": [], "without_fault": []}


def store(rows: list[dict[str, Any]], silent: list[dict[str, Any]]) -> None:
    """Write what is finished, with the figures of all of it."""
    record = {
        "seed": HELD,
        "faults": len(rows),
        "named": sum(row["right"] for row in rows),
        "pairs_without_fault": len(silent),
        "pairs_without_a_named_cause": sum(not row["named"] for row in silent),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "confusion": confusion(rows),
        "rows": rows,
        "without_fault": silent,
    }
    RESULTS.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def layers_named(verdict: str) -> list[int] | None:
    """The layers in which a verdict puts the cause, empty for all of them; None without a cause."""
    found = NAMED.match(verdict)
    if found is None:
        return None
    return [int(number) for number in (found["layers"] or "").split(", ") if number]


def layers_right(rows: list[dict[str, Any]]) -> int:
    """Of the faults that were named, those whose layers were named, too."""
    return sum(row["right"] and layers_named(row["verdict"]) == row["layers"] for row in rows)
