"""`spectrope audit`: what a checkpoint really applies, against what its configuration declares."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from spectrope.checkpoints import audit as auditing
from spectrope.checkpoints.audit.page import reaches, write_audit
from spectrope.checkpoints.audit.text import SHOWN, closing, reasons, shown_rows, title
from spectrope.checkpoints.options import Checkpoints, ContentsOption, LayersOption, LengthOption
from spectrope.console import JsonOption, counted, explain, print_json, say, table
from spectrope.figures import check_page

MISMATCH = 1
EXIT_CODES = {"matches": 0, "differs": MISMATCH, "incomplete": 3}


@dataclass(frozen=True, kw_only=True)
class Audit(Checkpoints):
    """Compare each layer's positional encoding with the configuration.

    Ends with 0 if every layer matches, with 1 if something differs, with 2 if it cannot be audited, and with
    3 if nothing differs but something is undeclared, ambiguous, or could not be told.

    Examples:
    $ spectrope audit path/to/checkpoint
    $ spectrope audit path/to/checkpoint --paths --out audit.html
    """

    model: Annotated[
        tyro.conf.Positional[str],
        tyro.conf.arg(name="model", help="Checkpoint: a folder, or the id of a cached Hugging Face model."),
    ]
    length: LengthOption = None
    layers: LayersOption = None
    contents: ContentsOption = 2
    paths: Annotated[bool, tyro.conf.arg(help="Also check cached decoding, padding and packing.")] = False
    json: JsonOption = False
    out: Annotated[
        Path | None, tyro.conf.arg(help="Also write an HTML page with figures of the kernels.")
    ] = None

    def run(self) -> int:
        """Audit, print, and say by the exit code whether all matches."""
        if self.out is not None:
            check_page(self.out)
        model = self.open(self.model, self.layers)
        with counted("auditing") as watch:
            audit = auditing.audit(
                model, length=self.length, paths=self.paths, batch=self.contents, watch=watch
            )
        if self.json:
            print_json(audit.to_dict())
        else:
            show(audit)
        if self.out is not None:
            write_audit(audit, self.out)
            if not self.json:
                say(f"Page: {self.out.resolve()}")
        return EXIT_CODES[audit.outcome]


def show(audit: auditing.Audit) -> None:
    """Print a row per layer and path, then every reason for a verdict that is no match."""
    table(title(audit), SHOWN, shown_rows(audit))
    if audit.paths:
        table("", ("path", "verdict"), [(record.path, record.verdict) for record in audit.paths])
    for names, text in reaches(audit).items():
        layers = "layers" if "," in names else "layer"
        say(f"{layers} {names}: {text}")
    for where, why in reasons(audit):
        say(f"{where}: {why}")
    if audit.ok:
        explain(closing(audit))
