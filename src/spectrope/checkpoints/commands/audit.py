"""`spectrope audit`: what a checkpoint really applies, against what its configuration declares."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from spectrope.checkpoints import audit as auditing
from spectrope.checkpoints.audit.finding import SEEN, UNSEEN
from spectrope.checkpoints.audit.page import reaches, write_audit
from spectrope.checkpoints.options import BatchOption, Checkpoints, LayersOption, LengthOption
from spectrope.console import counted, explain, say, table
from spectrope.core import strict_json
from spectrope.figures import check_page

MISMATCH = 1


@dataclass(frozen=True, kw_only=True)
class Audit(Checkpoints):
    """Measure the positional encoding of every layer of a checkpoint and compare it with its configuration.

    Ends with 0 if every layer matches, with 1 if not, with 2 if it cannot be audited.
    """

    model: Annotated[
        tyro.conf.Positional[str], tyro.conf.arg(name="model", help="Local folder, or id of a cached model.")
    ]
    length: LengthOption = None
    layers: LayersOption = None
    batch: BatchOption = 2
    paths: Annotated[
        bool, tyro.conf.arg(help="Compare decoding from a cache, padding and packing with a plain pass.")
    ] = False
    json: Annotated[bool, tyro.conf.arg(help="Print the whole record as JSON instead of the table.")] = False
    out: Annotated[Path | None, tyro.conf.arg(help="Write a page with the kernels drawn: one HTML file.")] = (
        None
    )

    def run(self) -> int:
        """Audit, print, and say by the exit code whether all matches."""
        if self.out is not None:
            check_page(self.out)
        model = self.open(self.model, self.layers)
        with counted("auditing") as watch:
            audit = auditing.audit(model, length=self.length, paths=self.paths, batch=self.batch, watch=watch)
        if self.json:
            print(strict_json(audit.to_dict()))
        else:
            show(audit)
        if self.out is not None:
            write_audit(audit, self.out)
            if not self.json:
                say(f"Page: {self.out.resolve()}")
        return 0 if audit.ok else MISMATCH


def show(audit: auditing.Audit) -> None:
    """Print a row per layer and path, then every reason for a verdict that is no match."""
    title = f"{audit.model} ({audit.architecture}), {audit.length} positions in {audit.dtype}"
    table(
        title, ("layer", "position", "effective", "mask", "verdict"), [*_embeddings(audit), *_layers(audit)]
    )
    if audit.paths:
        table("", ("path", "verdict"), [(record.path, record.verdict) for record in audit.paths])
    for names, text in reaches(audit).items():
        layers = "layers" if "," in names else "layer"
        say(f"{layers} {names}: {text}")
    for where, why in reasons(audit):
        say(f"{where}: {why}")
    if audit.ok:
        explain(f"{SEEN} {UNSEEN}")


def reasons(audit: auditing.Audit) -> list[tuple[str, str]]:
    """Where something does not match, and why."""
    findings = [(where, f"{finding.code} {finding}") for where, finding in audit.findings]
    others = [(f"layer {layer.name}", layer.reason) for layer in audit.layers if layer.reason]
    paths = [(f"path {record.path}", record.reason) for record in audit.paths if record.reason]
    return [*findings, *others, *paths]


def _embeddings(audit: auditing.Audit) -> list[tuple[str, ...]]:
    return [
        ("embeddings", "absolute", f"table {one.table} from row {one.first_row}", "", one.verdict)
        if one.table
        else ("embeddings", "absolute" if one.verdict != "matches" else "NoPE", "none", "", one.verdict)
        for one in audit.absolutes
    ]


def _layers(audit: auditing.Audit) -> list[tuple[str, ...]]:
    return [
        (
            layer.name,
            layer.position,
            layer.effective.describe(layer.declared.turning.base if layer.declared.turning else None),
            str(layer.effective.mask),
            layer.verdict,
        )
        for layer in audit.layers
    ]
