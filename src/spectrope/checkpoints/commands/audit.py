"""`spectrope audit`: what a checkpoint really applies, against what its configuration declares."""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from torch import nn

from spectrope.checkpoints import audit as auditing
from spectrope.checkpoints.adapters import checkpoint_folder, declared_config, encoded
from spectrope.checkpoints.audit.fields import Declaration
from spectrope.checkpoints.audit.page import reaches, write_audit
from spectrope.checkpoints.audit.predictions import LONGEST
from spectrope.checkpoints.audit.repair import NOTHING, Repair, check_out, repair
from spectrope.checkpoints.audit.text import (
    SHOWN,
    closing,
    not_checked,
    reasons,
    shown_rows,
    subject,
    title,
)
from spectrope.checkpoints.audit.witness import certified_audit
from spectrope.checkpoints.gguf import FileAudit, audit_gguf, is_gguf
from spectrope.checkpoints.gguf.records import COLUMNS
from spectrope.checkpoints.options import (
    Checkpoints,
    ContentsOption,
    LayersOption,
    LengthOption,
    PartOption,
)
from spectrope.console import (
    RARE,
    CertificateOption,
    JsonOption,
    counted,
    explain,
    options_again,
    print_json,
    refuse_given,
    say,
    table,
)
from spectrope.core import ConfigError
from spectrope.figures import check_page
from spectrope.store import check_certificate, weights_and_config, write_certificate

MISMATCH = 1
EXIT_CODES = {"matches": 0, "differs": MISMATCH, "incomplete": 3}
NOT_RUN = "is for models that run; a GGUF file is read and not run, so keep the output of --json instead."
FOR_MODELS = (
    *(
        "contents",
        "serving_modes",
        "without_serving_modes",
        "out",
        "fix",
        "text",
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
    $ spectrope audit path/to/checkpoint --serving-modes --out audit.html
    $ spectrope audit model.gguf --source path/to/checkpoint
    """

    model: Annotated[
        tyro.conf.Positional[str],
        tyro.conf.arg(name="model", help="Checkpoint: a folder, a cached Hugging Face id, or a GGUF file."),
    ]
    source: Annotated[
        Path | None, tyro.conf.arg(help="For GGUF files: folder of the checkpoint it was converted from.")
    ] = None
    part: PartOption = None
    length: LengthOption = None
    layers: LayersOption = None
    contents: ContentsOption = 2
    serving_modes: Annotated[
        bool,
        tyro.conf.arg(help="Require all serving modes: exit code 3 if the model does not run in one."),
        RARE,
    ] = False
    without_serving_modes: Annotated[
        bool,
        tyro.conf.arg(
            help="Skip serving modes: caches, chunks, padding, packing, embeddings, ends of texts."
        ),
        RARE,
    ] = False
    certificate: CertificateOption = None
    fix: Annotated[
        Path | None,
        tyro.conf.arg(help="If something differs, write a corrected config.json into this new folder."),
    ] = None
    text: Annotated[
        Path | None, tyro.conf.arg(help="Text file on which the impact of findings is measured."), RARE
    ] = None
    json: JsonOption = False
    out: Annotated[
        Path | None, tyro.conf.arg(help="Also write an HTML page with figures of the kernels.")
    ] = None

    def run(self) -> int:
        """Audit, print, and say by the exit code whether all matches."""
        if is_gguf(self.model) or self.model.endswith(".gguf"):
            return self._of_file()
        refuse_given(
            self,
            ("source",),
            "applies only to GGUF files, whose source is the checkpoint that they were converted from.",
        )
        if self.out is not None:
            check_page(self.out)
        if self.certificate is not None:
            check_certificate(self.certificate)
        if self.fix is not None:
            if self.part is not None:
                raise ConfigError("--fix corrects the configuration of a whole model; leave out --part.")
            check_fix(Path(self.model), self.fix, self.layers)
        model = self.open(self.model, self.layers, part=self.part, by_layer=True)
        audit = self._audited(model)
        if not self.json:
            show(audit)
        done = None if self.fix is None else self._repaired(model, audit, self.fix)
        if self.json:
            print_json(audit.to_dict() | ({} if done is None else {"fix": done.to_dict()}))
        elif done is not None:
            show_repair(done)
        if self.out is not None:
            again = options_again(self, without=("model", "json", "certificate", "fix"))
            write_audit(audit, self.out, shlex.join(["spectrope", "audit", self.model, *again]))
            if not self.json:
                say(f"Page: {self.out.resolve()}")
        if self.certificate is not None:
            certified = certified_audit(model, audit)
            folder = checkpoint_folder(self.model)
            write_certificate(self.certificate, certified, subject(audit), weights_and_config(folder))
            if not self.json:
                say(f"Certificate: {self.certificate}, which `spectrope verify` checks.")
        return EXIT_CODES[audit.outcome]

    def _audited(self, model: nn.Module) -> auditing.Audit:
        with counted("auditing") as watch:
            return auditing.audit(
                model,
                length=self.length,
                serving_modes=self._serving_modes,
                batch=self.contents,
                text=None if self.text is None else self._tokens(model, self.text),
                watch=watch,
            )

    def _tokens(self, model: nn.Module, text: Path) -> list[int]:
        """The first tokens of a text, by the checkpoint's tokenizer.

        Raises:
            ConfigError: If there is no tokenizer, or the text cannot be read.
        """
        tokenizer = self.tokenizer(self.model)
        if tokenizer is None:
            raise ConfigError(f"--text needs a tokenizer; {self.model} has none that can be read.")
        try:
            content = text.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"--text {text} cannot be read as text: {error}.") from None
        return encoded(model, tokenizer, [content], LONGEST)[0]

    def _repaired(self, model: nn.Module, audit: auditing.Audit, out: Path) -> Repair:
        """The configuration corrected where that is what is wrong, and what is to change in code."""
        if audit.outcome != "differs":
            return NOTHING
        audit.require_layers("--fix")
        return repair(
            Path(self.model),
            Declaration(**declared_config(model)),
            audit,
            out,
            lambda folder: self._audited(self.open(str(folder), by_layer=True)),
        )

    @property
    def _serving_modes(self) -> bool | None:
        """False skips serving modes, True requires them, None checks those in which the model runs."""
        if self.serving_modes and self.without_serving_modes:
            raise ConfigError(
                "--serving-modes and --without-serving-modes exclude each other; give one of them."
            )
        return False if self.without_serving_modes else self.serving_modes or None

    def _of_file(self) -> int:
        """Audit a GGUF file."""
        refuse_given(self, ("part",), "names a model within a checkpoint; a GGUF file has none.")
        refuse_given(self, FOR_MODELS, NOT_RUN)
        with counted("auditing") as watch:
            audit = audit_gguf(self.model, self.source, length=self.length, layers=self.layers, watch=watch)
        if self.json:
            print_json(audit.to_dict())
        else:
            show_file(audit)
        return EXIT_CODES[audit.outcome]


def check_fix(folder: Path, out: Path, layers: str | None) -> None:
    """Refuse what cannot be corrected before it is audited.

    Raises:
        ConfigError: If the checkpoint is no folder, only some of its layers are loaded, or the output holds
            anything.
    """
    if not folder.is_dir():
        raise ConfigError(f"--fix corrects the config.json of a local folder; {folder} is none.")
    if layers is not None:
        raise ConfigError("--fix corrects a configuration for all layers; leave out --layers.")
    check_out(out)


def show_repair(done: Repair) -> None:
    """Print what was corrected and audited again, and what must change in code."""
    if done.path is None or done.audit is None:
        say(done.reason)
    else:
        say(f"Corrected: {done.path}, which {done.meaning}. Audited again: {done.audit.outcome}.")
        for change in done.changes:
            say(f"  {change}")
        say(
            "An audit cannot show whether the weights were trained with this encoding; if they were, copy "
            "the file."
        )
    for text in done.in_code:
        say(f"To change in code: {text}")


def show_file(audit: FileAudit) -> None:
    """Print a row per layer, then every reason for a verdict that is no match."""
    table(audit.title, COLUMNS, audit.shown_rows())
    for where, why in audit.reasons():
        say(f"{where}: {why}")
    if audit.ok:
        explain(audit.closing())


def show(audit: auditing.Audit) -> None:
    """Print a row per layer and serving mode, then every reason for a verdict that is no match."""
    table(title(audit), SHOWN, shown_rows(audit))
    if audit.serving_modes:
        served = [(record.mode, record.verdict) for record in audit.serving_modes]
        table("", ("serving mode", "verdict"), served)
    for names, text in reaches(audit).items():
        layers = "layers" if "," in names else "layer"
        say(f"{layers} {names}: {text}")
    for where, why in reasons(audit):
        say(f"{where}: {why}")
    for note in audit.notes:
        say(f"note: {note}")
    explain(closing(audit) if audit.ok else not_checked(audit))
