"""`spectrope atlas`: which layers, heads and frequency bands a model needs."""

import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import tyro

from spectrope.checkpoints import (
    BatchOption,
    Checkpoints,
    SomeLayersOption,
    TaskOption,
    TextsOption,
    TokensOption,
)
from spectrope.checkpoints.ablation.calls import CallMethod
from spectrope.console import (
    ROOT,
    JsonOption,
    Own,
    RunsRoot,
    options_again,
    print_json,
    refuse_given,
    say,
    show,
)
from spectrope.core import ConfigError, require
from spectrope.figures import check_figure, check_page
from spectrope.front import run_or_checkpoint
from spectrope.front.atlas import Atlas as MeasuredAtlas
from spectrope.front.atlas import atlas
from spectrope.store import Run, check_place, write_parquet


@dataclass(frozen=True, kw_only=True)
class Atlas(Checkpoints):
    """Measure which layers, heads and frequency bands a model needs.

    One head is changed at a time: the rotation of a frequency band is removed, or frozen at the head's mean
    lag; all other bands are removed; or the head attends only by position or only by content. A band is a
    group of rotating pairs, or of Fourier components of a lag bias.

    Examples:
    $ spectrope atlas RUN --out atlas.html
    $ spectrope atlas path/to/checkpoint --layers 0:4 --method adaptive
    """

    target: Annotated[
        tyro.conf.Positional[str],
        tyro.conf.arg(name="target", help="Run (id or folder), or checkpoint (folder or cached id)."),
    ]
    bands: Annotated[int, tyro.conf.arg(help="Frequency bands per head.")] = 4
    method: Annotated[
        CallMethod,
        tyro.conf.arg(
            help="All examples; as many as each decision needs; the cells that gradients suggest; or both."
        ),
    ] = "exact"
    threshold: Annotated[
        float, tyro.conf.arg(help="Drop, in points, above which a cell is counted as costly.")
    ] = 5.0
    examples: Annotated[
        int | None,
        tyro.conf.arg(help="Held-out examples (default: 2000), or sequences for a checkpoint (32)."),
    ] = None
    task: TaskOption = None
    texts: TextsOption = None
    length: TokensOption = 64
    layers: SomeLayersOption = None
    batch: BatchOption = None
    out: Annotated[
        Path | None,
        tyro.conf.arg(
            metavar="FILE",
            help="Write the page (.html), the figures (.png, .svg, .pdf) or the cells (.parquet).",
        ),
    ] = None
    json: JsonOption = False
    own: Own = ()
    runs: RunsRoot = ROOT

    def run(self) -> None:
        """Measure, print the costliest bands, and write the page."""
        require(self.examples is None or self.examples >= 4, self, "examples", "at least 4")
        require(self.batch is None or self.batch >= 1, self, "batch", "at least 1")
        self._check_out()
        target = run_or_checkpoint(self.target, self.runs, self.allow_download, self.own)
        measured = self._of_run(target) if isinstance(target, Run) else self._of_checkpoint(target)
        show(measured)
        if self.json:
            print_json(measured.to_dict())
        if self.out is not None:
            say(f"Written to {self._write(measured, self.out)}.")

    def _of_run(self, run: Run) -> MeasuredAtlas:
        foreign = ("task", "texts", "length", "layers", "batch", "dtype")
        refuse_given(self, foreign, f"is for checkpoints; {run.path} is a run with its own task.")
        return atlas(
            run,
            bands=self.bands,
            threshold=self.threshold,
            method=self.method,
            examples=self.examples,
            device=self.device,
        )

    def _of_checkpoint(self, source: str) -> MeasuredAtlas:
        if self.task is not None and self.texts is not None:
            raise ConfigError("a checkpoint is scored on either --task or --texts; got both.")
        measured = atlas(
            self.open(source),
            on=self.texts or self.task,
            tokenizer=self.tokenizer_for(source, self.texts),
            bands=self.bands,
            threshold=self.threshold,
            method=self.method,
            examples=self.examples,
            length=self.length,
            layers=self.chosen(self.layers),
            batch=self.batch,
            device=self.device,
        )
        return replace(measured, drawn=replace(measured.drawn, name=Path(source).name))

    def _check_out(self) -> None:
        if self.out is None:
            return
        if self.out.suffix == ".parquet":
            check_place(self.out)
        elif self.out.suffix.lower() == ".html":
            check_page(self.out)
        else:
            check_figure(self.out)

    def _write(self, measured: MeasuredAtlas, path: Path) -> Path:
        if path.suffix == ".parquet":
            write_parquet(path, measured.to_frame())
            return path
        if path.suffix.lower() != ".html":
            return measured.figure().save(path)
        again = options_again(self, without=("target", "out", "json"))
        return measured.page(
            path, shlex.join(["spectrope", "atlas", self.target, *again, "--out", "atlas.html"])
        )
