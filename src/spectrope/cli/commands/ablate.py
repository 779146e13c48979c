"""`spectrope ablate`: which heads of a trained run or of a checkpoint matter, how surely."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, cast, get_args

import polars as pl
import tyro

from spectrope.checkpoints import CheckpointAblation, CheckpointFill, Checkpoints
from spectrope.cli.targets import run_or_checkpoint
from spectrope.console import ROOT, Own, RunsRoot, bars, explain, frame, refuse_given, say
from spectrope.core import ConfigError, choose_device, require
from spectrope.lab import (
    EXAMPLES,
    FILLS,
    PROTOCOLS,
    Adaptive,
    Cumulative,
    Exact,
    Method,
    Screen,
    ablate,
    choose_protocol,
    experiment_of,
    screening_agreement,
)
from spectrope.stats import Precision, Threshold
from spectrope.store import Run

SEQUENCES = 32


@dataclass(frozen=True, kw_only=True)
class Ablate(Checkpoints):
    """Change each head's output before the output projection and measure what it costs.

    Of a run of `spectrope train`, accuracy on its held-out examples; of a language model's checkpoint, loss
    and accuracy on repeated random tokens or on texts.
    """

    target: Annotated[
        tyro.conf.Positional[str],
        tyro.conf.arg(
            name="target", help="Run: id (or its start) or folder. Checkpoint: folder, or cached id."
        ),
    ]
    method: Annotated[
        Literal["exact", "adaptive", "cumulative", "screen"],
        tyro.conf.arg(help="run: all examples; as few as decide; head after head; first-order estimates."),
    ] = "exact"
    fill: Annotated[
        str | None,
        tyro.conf.arg(
            help=f"What replaces a head's output: {', '.join(FILLS)}, or file.py:Class; "
            "None keeps the protocol's (zero)."
        ),
    ] = None
    protocol: Annotated[
        str,
        tyro.conf.arg(help=f"run: {', '.join(PROTOCOLS)}; all but controlled are of the paper's code."),
    ] = "controlled"
    examples: Annotated[
        int | None,
        tyro.conf.arg(
            help=f"Examples of a run ({EXAMPLES}; names of tables tell others), or sequences ({SEQUENCES})."
        ),
    ] = None
    half_width: Annotated[
        float | None, tyro.conf.arg(help="adaptive: stop at intervals of this half-width, in points.")
    ] = None
    threshold: Annotated[
        float, tyro.conf.arg(help="adaptive: else stop when |drop| is surely above or below, in points.")
    ] = 5.0
    task: Annotated[
        str | None,
        tyro.conf.arg(help="checkpoint: induction (None), or distance, a period of each sequence's own."),
    ] = None
    texts: Annotated[Path | None, tyro.conf.arg(help="checkpoint: a file with one text per line.")] = None
    length: Annotated[int, tyro.conf.arg(help="checkpoint: tokens per sequence.")] = 64
    layers: Annotated[str | None, tyro.conf.arg(help="checkpoint: change heads of these alone: 0:4.")] = None
    batch: Annotated[int | None, tyro.conf.arg(help="checkpoint: sequences in one batch.")] = None
    json: Annotated[bool, tyro.conf.arg(help="checkpoint: print the whole result as JSON.")] = False
    own: Own = ()
    runs: RunsRoot = ROOT

    def run(self) -> None:
        """Ablate and print what heads cost; tables are kept with a run."""
        require(self.examples is None or self.examples >= 4, self, "examples", "at least 4")
        target = run_or_checkpoint(self.target, self.runs, self.allow_download, self.own)
        if isinstance(target, Run):
            self._ablate_run(target)
        else:
            self._plan().run(self.open(target), self.tokenizer(target))

    def _plan(self) -> CheckpointAblation:
        """What the options ask of a checkpoint."""
        if self.method != "exact" or self.protocol != "controlled":
            raise ConfigError(
                "a checkpoint's heads are measured exactly; --method and --protocol are for runs."
            )
        refuse_given(self, ("half_width", "threshold"), "goes with --method adaptive, which is for runs.")
        if self.task is not None and self.texts is not None:
            raise ConfigError("a checkpoint is scored on a --task or on --texts, one of the two.")
        fill, known = self.fill or "zero", get_args(CheckpointFill)
        if fill not in known:
            raise ConfigError(f"a checkpoint's heads are filled with {', '.join(known)}; got {fill!r}.")
        require(self.batch is None or self.batch >= 1, self, "batch", "at least 1")
        return CheckpointAblation(
            task=self.task or "induction",
            texts=self.texts,
            examples=self.examples or SEQUENCES,
            length=self.length,
            batch=self.batch,
            layers=self.layers,
            fill=cast(CheckpointFill, fill),
            json=self.json,
        )

    def _ablate_run(self, run: Run) -> None:
        foreign = ("task", "texts", "length", "layers", "batch", "json", "dtype")
        refuse_given(self, foreign, f"is for checkpoints; {run.path} is a run with its own task.")
        method = self.chosen_method()
        with bars([experiment_of(run).label]) as progress:
            tables = ablate(run, choose_device(self.device), method, progress.watch)
        say(f"Drops in percentage points; layers and heads count from 0; tables in {run.path}.")
        for name, table in tables.items():
            _print(name, table)

    def chosen_method(self) -> Method:
        """The method that the options describe."""
        protocol = choose_protocol(self.protocol, self.fill)
        self._refuse_options_of_other_methods()
        if self.method == "adaptive":
            width = self.half_width
            aim = Threshold(self.threshold / 100) if width is None else Precision(width / 100)
            return Adaptive(aim=aim, protocol=protocol)
        if self.method == "screen":
            return Screen(fill=protocol.fill, examples=self.examples or EXAMPLES)
        kind = Cumulative if self.method == "cumulative" else Exact
        return kind(protocol=protocol, examples=self.examples or EXAMPLES)

    def _refuse_options_of_other_methods(self) -> None:
        if self.method != "adaptive":
            refuse_given(self, ("half_width", "threshold"), "goes with --method adaptive.")
        else:
            refuse_given(
                self, ("examples",), "does not go with --method adaptive, which takes as few as decide."
            )
            if self.half_width is not None:
                refuse_given(
                    self, ("threshold",), "does not go with --half-width: one of them says when to stop."
                )
        if self.method == "screen":
            refuse_given(self, ("protocol",), "does not go with --method screen, which takes --fill alone.")


SHOWN = {
    "ablation": ("layer", "head", "drop", "low", "high", "n"),
    "deposit": ("layer", "head", "drop", "gap_low", "share_low", "p_adjusted", "deposit"),
    "adaptive": ("layer", "head", "drop", "drop_low", "drop_high", "n", "saving"),
    "cumulative": ("n_changed", "layer", "head", "single", "drop", "accuracy"),
    "screen": ("layer", "head", "drop", "loss_increase_estimate"),
}
HEADS_SHOWN = 12


def _print(name: str, table: pl.DataFrame) -> None:
    kind = name.split("-")[0]
    shown = table.select(SHOWN[kind])
    if kind in {"ablation", "adaptive", "screen"}:
        shown = shown.sort("drop", descending=True).head(HEADS_SHOWN)
    frame(name, shown)
    if kind == "screen":
        agreement = screening_agreement(table)
        rho = "undefined" if agreement.spearman is None else f"{agreement.spearman:.2f}"
        explain(f"rank correlation of the estimates with the exact drops: {rho}")
