"""The audit of a GGUF file, as plain values that serialise to JSON."""

import dataclasses
from dataclasses import dataclass
from typing import Any

from spectrope.checkpoints.audit.compare import Discrepancy
from spectrope.checkpoints.audit.finding import Finding, finding_of
from spectrope.checkpoints.audit.impact import NOT_OF_A_LAYER, UNMEASURED
from spectrope.checkpoints.audit.records import AuditOutcome, LayerRecord
from spectrope.checkpoints.audit.text import layer_row

COLUMNS = ("layer", "effective", "declared", "rows", "mask", "verdict")
FILE = "file"


@dataclass(frozen=True)
class FileAudit:
    """What llama.cpp would apply in each layer of a GGUF file, against what its source declares.

    Args:
        model: The file.
        architecture: Its `general.architecture`.
        types: Type in which most query projections are stored.
        source: Folder of the checkpoint that it was converted from; None where none was given.
        length: Positions of the runtime's context.
        layers: A record per layer; its effective encoding is in the order of the source's coordinates.
        blocks: Layers that the file states.
        rows: For each layer, how its rows lie.
        file: Where the file contradicts itself or its source as a whole.
        unread: Metadata and tensors that state positions and that llama.cpp does not read here.
        runtime: Commit of llama.cpp with whose runs the rules of the architecture have been compared; None
            where they were only read in its source code.
    """

    model: str
    architecture: str
    types: str
    source: str | None
    length: int
    layers: tuple[LayerRecord, ...]
    blocks: int
    rows: tuple[str, ...]
    file: tuple[Discrepancy, ...]
    unread: tuple[str, ...] = ()
    runtime: str | None = None

    @property
    def outcome(self) -> AuditOutcome:
        """Whether everything matches, something differs, or nothing differs but something could not be
        determined."""
        verdicts = {record.verdict for record in self.layers}
        if self.file or "differs" in verdicts:
            return "differs"
        return "matches" if verdicts <= {"matches"} else "incomplete"

    @property
    def ok(self) -> bool:
        """Whether every layer matches the source, and the file agrees with itself."""
        return self.outcome == "matches"

    @property
    def findings(self) -> list[tuple[str, Discrepancy]]:
        """Every finding with the layer that it belongs to, or "file"."""
        layers = [(f"layer {one.name}", finding) for one in self.layers for finding in one.findings]
        return [*((FILE, finding) for finding in self.file), *layers]

    @property
    def records(self) -> tuple[Finding, ...]:
        """Every finding as a flat record with its code."""
        numbers = {f"layer {one.name}": one.layer for one in self.layers}
        return tuple(
            finding_of(where, numbers.get(where), one, UNMEASURED if where in numbers else NOT_OF_A_LAYER)
            for where, one in self.findings
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready values, with the summary first."""
        findings = [dataclasses.asdict(record) for record in self.records]
        return {"ok": self.ok, "outcome": self.outcome, "findings": findings, **dataclasses.asdict(self)}

    def __str__(self) -> str:
        """Title, a line per layer, and every reason."""
        lines = ["  ".join(row) for row in self.shown_rows()]
        return "\n".join([self.title, *lines, *(f"{where}: {why}" for where, why in self.reasons())])

    @property
    def title(self) -> str:
        """File, architecture, type of the weights, length, and how the rules are known."""
        return (
            f"{self.model} ({self.architecture}, {self.types}), as llama.cpp applies it to {self.length} "
            f"positions by rules {self._checked}"
        )

    @property
    def _checked(self) -> str:
        """How the rules of the architecture are known, in words."""
        if self.runtime is None:
            return "that were read in its source code and not compared with a run"
        return f"some of which were compared with runs of its commit {self.runtime}"

    def shown_rows(self) -> list[tuple[str, ...]]:
        """A row per layer under `COLUMNS`."""
        rows = zip(map(layer_row, self.layers), self.rows, strict=True)
        return [tuple((row | {"rows": order})[name] for name in COLUMNS) for row, order in rows]

    def reasons(self) -> list[tuple[str, str]]:
        """Where something does not match, and why; layers with the same reason share a line."""
        by_reason: dict[str, list[str]] = {}
        for one in self.records:
            by_reason.setdefault(f"{one.code} {one.message}", []).append(one.where)
        for layer in self.layers:
            if layer.reason:
                by_reason.setdefault(layer.reason, []).append(f"layer {layer.name}")
        told = [(_joined(places), why) for why, places in by_reason.items()]
        return [*told, *((FILE, text) for text in self.unread)]

    @property
    def _looked_at(self) -> str:
        """The layers that were compared, in words."""
        numbers = [layer.layer for layer in self.layers]
        if len(numbers) == self.blocks:
            return "every layer"
        return f"{_joined([f'layer {number}' for number in numbers])} of {self.blocks}"

    def closing(self) -> str:
        """What an audit without findings looked at, and what it did not."""
        return (
            f"In {self._looked_at}, the rotation, scaling, window and factor on dot products are as declared "
            "in the source, and the query and key rows are in the order that llama.cpp expects. The file was "
            "read but not run. Not tested: other tensors, the tokenizer, run-time options of llama.cpp, and "
            "other runtimes."
        )


def _joined(places: list[str]) -> str:
    """Places as text: "layer 3", or "layers 0 to 5, 7"."""
    numbers = [int(place.rpartition(" ")[2]) for place in places if place.startswith("layer ")]
    if len(places) == 1 or len(numbers) != len(places):
        return ", ".join(places)
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return "layers " + ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs)
