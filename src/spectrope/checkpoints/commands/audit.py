"""`spectrope audit`: what a checkpoint really applies, against what its configuration declares."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from spectrope.checkpoints import audit as auditing
from spectrope.checkpoints.adapters import checkpoint_folder
from spectrope.checkpoints.audit.page import reaches, write_audit
from spectrope.checkpoints.audit.text import SHOWN, closing, reasons, shown_rows, title
from spectrope.checkpoints.audit.witness import certified_audit
from spectrope.checkpoints.gguf import FileAudit, audit_gguf, is_gguf
from spectrope.checkpoints.gguf.records import COLUMNS
from spectrope.checkpoints.options import Checkpoints, ContentsOption, LayersOption, LengthOption
from spectrope.console import (
    CertificateOption,
    JsonOption,
    counted,
    explain,
    print_json,
    refuse_given,
    say,
    table,
)
from spectrope.figures import check_page
from spectrope.store import weights_and_config, write_certificate

MISMATCH = 1
EXIT_CODES = {"matches": 0, "differs": MISMATCH, "incomplete": 3}
NOT_RUN = "is for models that run; a GGUF file is read and not run, so keep the output of --json instead."
FOR_MODELS = (
    *(
        "contents",
        "paths",
        "out",
        "certificate",
        "dtype",
        "device",
        "allow_download",
        "trust_remote_code",
        "allow_pickle",
    ),
)


@dataclass(frozen=True, kw_only=True)
class Audit(Checkpoints):
    """Compare each layer's positional encoding with the configuration.

    The exit code is 0 if every layer matches, 1 if something differs, 2 if the checkpoint cannot be audited,
    and 3 if nothing differs but something is undeclared, ambiguous, or could not be determined.

    Examples:
    $ spectrope audit path/to/checkpoint --paths --out audit.html
    $ spectrope audit model.gguf --source path/to/checkpoint
    """

    model: Annotated[
        tyro.conf.Positional[str],
        tyro.conf.arg(name="model", help="Checkpoint: a folder, a cached Hugging Face id, or a GGUF file."),
    ]
    source: Annotated[
        Path | None, tyro.conf.arg(help="For GGUF files: folder of the checkpoint it was converted from.")
    ] = None
    length: LengthOption = None
    layers: LayersOption = None
    contents: ContentsOption = 2
    paths: Annotated[bool, tyro.conf.arg(help="Also check cached decoding, padding and packing.")] = False
    certificate: CertificateOption = None
    json: JsonOption = False
    out: Annotated[
        Path | None, tyro.conf.arg(help="Also write an HTML page with figures of the kernels.")
    ] = None

    def run(self) -> int:
        """Audit, print, and say by the exit code whether all matches."""
        if is_gguf(self.model) or self.model.endswith(".gguf"):
            return self._of_file()
        refuse_given(self, ("source",), "goes with a GGUF file, whose source is the checkpoint it came from.")
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
        if self.certificate is not None:
            certified = certified_audit(model, audit)
            folder = checkpoint_folder(self.model)
            write_certificate(self.certificate, certified, audit.model, weights_and_config(folder))
            if not self.json:
                say(f"Certificate: {self.certificate}, which `spectrope verify` checks.")
        return EXIT_CODES[audit.outcome]

    def _of_file(self) -> int:
        """Audit a GGUF file."""
        refuse_given(self, FOR_MODELS, NOT_RUN)
        with counted("auditing") as watch:
            audit = audit_gguf(self.model, self.source, length=self.length, layers=self.layers, watch=watch)
        if self.json:
            print_json(audit.to_dict())
        else:
            show_file(audit)
        return EXIT_CODES[audit.outcome]


def show_file(audit: FileAudit) -> None:
    """Print a row per layer, then every reason for a verdict that is no match."""
    table(audit.title, COLUMNS, audit.shown_rows())
    for where, why in audit.reasons():
        say(f"{where}: {why}")
    if audit.ok:
        explain(audit.closing())


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
