"""`spectrope spectrum`: spectra of the heads of a run or a checkpoint, or of an encoding's kernel."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from spectrope.checkpoints import LENGTH, Checkpoints
from spectrope.console import RARE, ROOT, JsonOption, Own, RunsRoot, print_json, refuse_given, say, show
from spectrope.core import ConfigError, require
from spectrope.front import run_or_checkpoint
from spectrope.front.spectrum import HEADS, POSITIONS, Spectra, spectrum, spectrum_of_encoding
from spectrope.front.spectrum_show import EncodingSpectrum
from spectrope.lab import certified_kernel
from spectrope.store import Run, check_place, disk_errors, write_certificate, write_parquet


@dataclass(frozen=True, kw_only=True)
class Spectrum(Checkpoints):
    """Measure the spectra of heads, or bound the spectrum of an encoding.

    Examples:
    $ spectrope spectrum RUN --terms
    $ spectrope spectrum --encoding alibi --length 1024
    """

    target: Annotated[
        tyro.conf.Positional[str | None],
        tyro.conf.arg(name="target", help="Run (id or folder), or checkpoint (folder or cached id)."),
    ] = None
    encoding: Annotated[
        str | None,
        tyro.conf.arg(help="Without TARGET: bound the spectrum of this encoding's kernel."),
    ] = None
    length: Annotated[
        int | None,
        tyro.conf.arg(help=f"Number of positions (default: encodings {POSITIONS}, checkpoints {LENGTH})."),
    ] = None
    n_heads: Annotated[
        int | None, tyro.conf.arg(help=f"With --encoding: number of heads (default: {HEADS})."), RARE
    ] = None
    out: Annotated[
        Path | None, tyro.conf.arg(help="For checkpoints and encodings: folder for Parquet tables.")
    ] = None
    examples: Annotated[
        int, tyro.conf.arg(help="Number of held-out examples (the longest), or of sequences.")
    ] = 64
    texts: Annotated[
        Path | None,
        tyro.conf.arg(help="For checkpoints: file with one text per line (default: random tokens)."),
        RARE,
    ] = None
    layers: Annotated[
        str | None,
        tyro.conf.arg(metavar="RANGE", help="For checkpoints: layers to measure, such as 0:4."),
        RARE,
    ] = None
    batch: Annotated[
        int | None, tyro.conf.arg(help="For checkpoints: sequences per batch (default: all)."), RARE
    ] = None
    draws: Annotated[int, tyro.conf.arg(help="Permutations in the test of the Toeplitz share."), RARE] = 199
    quantities: Annotated[
        tuple[str, ...],
        tyro.conf.UseAppendAction,
        tyro.conf.arg(metavar="FILE:CLASS", help="User-defined spectral quantity. The file is executed."),
    ] = ()
    terms: Annotated[
        bool,
        tyro.conf.arg(help="Instead, split logits into terms of content and position (Eq. 8 of the paper)."),
    ] = False
    certificates: Annotated[
        Path | None,
        tyro.conf.arg(help="With --encoding: folder for certificates of the extreme eigenvalues."),
        RARE,
    ] = None
    own: Own = ()
    runs: RunsRoot = ROOT
    json: JsonOption = False

    def run(self) -> None:
        """Measure, keep the tables, print them."""
        if (self.target is None) == (self.encoding is None):
            raise ConfigError("spectrum takes exactly one of a run, a checkpoint and --encoding NAME.")
        if self.out is not None:
            check_place(self.out / "table.parquet")
        if self.encoding is not None:
            foreign = ("texts", "layers", "batch", "examples", "draws", "dtype", "quantities", "terms")
            refuse_given(self, foreign, "is for runs or checkpoints; an encoding by itself has no content.")
            refuse_given(self, ("own",), "goes with a run.")
            refuse_given(self, ("device",), "is for runs or checkpoints; kernels of encodings are small.")
            require(self.n_heads is None or self.n_heads >= 1, self, "n_heads", "at least 1")
            length = POSITIONS if self.length is None else self.length
            require(length >= 2, self, "length", "at least 2")
            found = spectrum_of_encoding(self.encoding, length, self.n_heads)
            self._keep(found)
            if self.certificates is not None:
                self._certify(found, self.certificates)
            return
        refuse_given(self, ("n_heads", "certificates"), "goes with --encoding; a model has its own.")
        target = run_or_checkpoint(self.target or "", self.runs, self.allow_download, self.own)
        if isinstance(target, Run):
            foreign = ("texts", "layers", "batch", "length", "out", "dtype")
            refuse_given(self, foreign, f"is for checkpoints; {target.path} is a run with its own examples.")
            plan = {"examples": self.examples, "draws": self.draws, "quantities": self.quantities}
            plan |= {"terms": self.terms}
            self._tell(spectrum(target, device=self.device, **plan))
        else:
            self._measure_checkpoint(target)

    def _certify(self, found: EncodingSpectrum, folder: Path) -> None:
        """Write a certificate per kernel."""
        for kernel in found.kernels:
            heads = "-".join(map(str, kernel.heads))
            name = (
                f"{kernel.kind}-{heads}" if len(heads) < 40 else f"{kernel.kind}-{kernel.heads[0]}-and-others"
            )
            target = f"{self.encoding}, {kernel.kind} of heads {', '.join(map(str, kernel.heads))}"
            write_certificate(folder / f"{name}.json", certified_kernel(kernel), target)
        if not self.json:
            n = len(found.kernels)
            say(f"{n} certificate{'s' * (n != 1)} in {folder}; `spectrope verify {folder}` checks them.")

    def _measure_checkpoint(self, source: str) -> None:
        require(self.batch is None or self.batch >= 1, self, "batch", "at least 1")
        measured = spectrum(
            self.open(source),
            on=self.texts,
            tokenizer=self.tokenizer_for(source, self.texts),
            examples=self.examples,
            length=self.length,
            layers=self.chosen(self.layers),
            draws=self.draws,
            batch=self.batch,
            quantities=self.quantities,
            terms=self.terms,
            device=self.device,
        )
        self._keep(measured)

    def _keep(self, measured: Spectra) -> None:
        """Print the result, and write its tables to --out, if it is given."""
        self._tell(measured)
        if self.out is not None:
            with disk_errors(self.out):
                self.out.mkdir(parents=True, exist_ok=True)
            for table, data in measured.tables.items():
                write_parquet(self.out / f"{table}.parquet", data)
            say(f"Tables in {self.out}.")

    def _tell(self, measured: Spectra) -> None:
        show(measured)
        if self.json:
            print_json(measured.to_dict())
