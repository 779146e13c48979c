"""`spectrope attention`: where attention can be sub-quadratic, at what certified error, and what it saves."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import polars as pl
import tyro
from torch import nn
from tyro.conf import subcommand

from spectrope.checkpoints.adapters import trained_length
from spectrope.checkpoints.attention_plan import Aim, plan_checkpoint, plan_run
from spectrope.checkpoints.options import Checkpoints
from spectrope.checkpoints.spectrum_show import Measured
from spectrope.cli.targets import run_or_checkpoint
from spectrope.console.options import ROOT, DeviceOption, RunsRoot, refuse_given
from spectrope.console.own import Own, named
from spectrope.console.progress import counted
from spectrope.console.terminal import frame, say, table
from spectrope.core.device import choose_device
from spectrope.core.errors import require
from spectrope.core.progress import Progress
from spectrope.core.strict_json import strict_json
from spectrope.fast.crossover import (
    REPEATS,
    SAMPLED,
    DegreeError,
    Layer,
    Timing,
    crossover,
    degree_errors,
    exponent,
    timings,
)
from spectrope.fast.figure import save_crossover
from spectrope.fast.plan import TOLERANCE
from spectrope.figures.save import check_figure
from spectrope.store import Run

TOKENS = 512
Tolerance = Annotated[
    float, tyro.conf.arg(help="Largest certified error of a head's output, in units of max|v|.")
]
Json = Annotated[bool, tyro.conf.arg(help="Print one JSON record instead of tables.")]


@dataclass(frozen=True, kw_only=True)
class Plan(Checkpoints):
    """Say for every head of a trained model whether polynomial attention serves it, and at what error."""

    target: Annotated[
        tyro.conf.Positional[str],
        tyro.conf.arg(
            name="target", help="Run: id (or its start) or folder. Checkpoint: folder, or cached id."
        ),
    ]
    length: Annotated[int, tyro.conf.arg(help="Tokens of the sequence that is planned for.")] = 65_536
    tolerance: Tolerance = TOLERANCE
    examples: Annotated[
        int, tyro.conf.arg(help="Held-out examples of a run, or sequences, on which ranges are measured.")
    ] = 16
    tokens: Annotated[
        int | None,
        tyro.conf.arg(help=f"checkpoint: tokens of each; None takes {TOKENS}, or as many as it takes."),
    ] = None
    texts: Annotated[
        Path | None, tyro.conf.arg(help="checkpoint: a file with one text per line; None draws tokens.")
    ] = None
    json: Json = False
    own: Own = None
    runs: RunsRoot = ROOT

    def run(self) -> None:
        """Measure the heads' ranges and print what each would get."""
        require(self.examples >= 2, self, "examples", "at least 2")
        aim = Aim(length=self.length, tolerance=self.tolerance)
        target = run_or_checkpoint(self.target, self.runs, self.allow_download, self.own)
        if isinstance(target, Run):
            told = f"is for checkpoints; {target.path} is a run with its own examples."
            refuse_given(self, ("tokens", "texts", "dtype"), told)
            found, tokens = plan_run(target, choose_device(self.device), aim, self.examples)
        else:
            found, tokens = self._of_checkpoint(target, aim)
        record = asdict(aim) | {"target": self.target, "tokens": tokens, "heads": found.to_dicts()}
        if self.json:
            print(strict_json(record))
        else:
            _show_plan(found, aim, tokens)

    def _of_checkpoint(self, source: str, aim: Aim) -> tuple[pl.DataFrame, int]:
        model = self.open(source)
        tokens = self._tokens(model)
        require(tokens >= 2, self, "tokens", "at least 2")
        content = Measured(
            texts=self.texts, examples=self.examples, length=tokens, layers=None, draws=0, batch=None
        )
        ids = content.ids(model, self.tokenizer(source))
        with counted("planning") as watch:
            return plan_checkpoint(model, ids, aim, watch), tokens

    def _tokens(self, model: nn.Module) -> int:
        return min(TOKENS, trained_length(model) or TOKENS) if self.tokens is None else self.tokens


HEADS = {
    "reach_bound": "range",
    "error_bound": "error",
    "speedup_estimate": "speed-up",
    "choice": "kernel",
}


def _show_plan(found: pl.DataFrame, aim: Aim, tokens: int) -> None:
    fast = found.filter(pl.col("choice") == "polynomial")
    say(
        f"{len(fast)} of {len(found)} heads would be polynomial at {aim.length:,} tokens and a certified "
        f"error of {aim.tolerance:g} max|v|. Range: no centred logit is larger in modulus, on the first "
        f"{tokens} tokens of each sequence; that longer ones reach no farther is assumed. Speed-up: "
        "predicted for this machine, forward.",
    )
    frame("", found.drop("reason", "rank").rename(HEADS))
    common = pl.col("reason").str.replace(" on logits up to .*", "")  # the range is in the table
    reasons = found.filter(common != "").group_by(common, maintain_order=True).len()
    for reason, heads in reasons.iter_rows():
        say(f"{heads} exact: {reason}.")


@dataclass(frozen=True, kw_only=True)
class Bench:
    """Time fast and exact attention of one head by length, and find its error by degree.

    A head with rotation is served by polynomial attention, one with --bias by Toeplitz terms and FFT.
    """

    head_dim: Annotated[int, tyro.conf.arg(help="Width of the head, even.")] = 16
    reach: Annotated[float, tyro.conf.arg(help="Largest modulus of a logit.")] = 0.5
    tolerance: Tolerance = TOLERANCE
    shortest: Annotated[
        int, tyro.conf.arg(help="Tokens of the shortest sequence; each is twice as long.")
    ] = 1024
    longest: Annotated[int, tyro.conf.arg(help="Tokens of the longest sequence at most.")] = 16_384
    causal: Annotated[bool, tyro.conf.arg(help="Let queries see the past alone.")] = False
    bias: Annotated[
        str | None,
        tyro.conf.arg(help="Add the lag bias of this encoding (kerple_log, file.py:Class); no rotation."),
    ] = None
    out: Annotated[
        Path | None, tyro.conf.arg(help="Picture: .png, .svg, .pdf, .html or .json (Vega-Lite).")
    ] = None
    json: Json = False
    device: DeviceOption = "auto"

    def run(self) -> None:
        """Measure, print, and draw what --out asks for."""
        require(self.shortest >= 1, self, "shortest", "at least 1")
        require(self.longest >= self.shortest, self, "longest", "at least as many as --shortest")
        if self.out is not None:
            check_figure(self.out)
        layer = Layer(
            head_dim=self.head_dim,
            reach=self.reach,
            tolerance=self.tolerance,
            causal=self.causal,
            bias=None if self.bias is None else named(self.bias),
        )
        device, lengths = choose_device(self.device), _doubling(self.shortest, self.longest)
        with counted("timing") as watch:
            found: list[Timing] = []
            for timing in timings(layer, lengths, device):
                found.append(timing)
                watch(Progress("attention", len(found), 4 * len(lengths)))
        errors = degree_errors(layer, lengths[-1], device)
        if self.json:
            print(strict_json(_record(layer, found, errors)))
        else:
            _show_bench(layer, found, errors)
        if self.out is not None:
            path = save_crossover(_frame(found), _frame(errors), layer.tolerance, self.out)
            if not self.json:
                say(f"Wrote {path.resolve()}")


def _doubling(shortest: int, longest: int) -> list[int]:
    lengths = [shortest]
    while lengths[-1] * 2 <= longest:
        lengths.append(lengths[-1] * 2)
    return lengths


def _frame(records: Sequence[Timing | DegreeError]) -> pl.DataFrame:
    return pl.DataFrame([asdict(record) for record in records], infer_schema_length=None)


def _record(layer: Layer, found: Sequence[Timing], errors: Sequence[DegreeError]) -> dict[str, Any]:
    directions = dict.fromkeys(timing.direction for timing in found)
    return {
        "layer": asdict(layer),
        "timings": [asdict(timing) for timing in found],
        "crossover": {direction: crossover(found, direction) for direction in directions},
        "errors": [asdict(error) for error in errors],
    }


def _show_bench(layer: Layer, found: Sequence[Timing], errors: Sequence[DegreeError]) -> None:
    mask = "causal" if layer.causal else "no mask"
    title = (
        f"one head of width {layer.head_dim}, {layer.bias or 'rope'}, {mask}, float32, products up to "
        f"{layer.reach:g}; "
        f"milliseconds, least of {REPEATS} runs, planning not counted; both: forward and backward"
    )
    is_exact = pl.col("kernel") == "exact"
    times = _frame(found).with_columns(
        ms=1000 * pl.col("seconds"), kernel=pl.when(is_exact).then(pl.lit("exact")).otherwise(pl.lit("fast"))
    )
    wide = times.pivot("kernel", index=["direction", "length"], values=["ms", "mib"])
    shown = wide.select(
        "direction",
        pl.col("length").alias("tokens"),
        pl.col("ms_fast").alias(layer.kernel),
        pl.col("ms_exact").alias("exact"),
        (pl.col("ms_exact") / pl.col("ms_fast")).alias("speed-up"),
        pl.col("mib_fast").alias("MiB"),
        pl.col("mib_exact").alias("exact's MiB"),
    )
    frame(title, shown.sort("direction", "tokens", descending=[True, False]))
    for direction in ("forward", "both"):
        say(_crossover_line(found, direction))
    rows = [
        (
            str(e.degree),
            f"{e.features:,}",
            "" if e.error_bound is None else f"{e.error_bound:.2e}",
            f"{e.error:.2e}",
        )
        for e in errors
    ]
    columns = ("degree", "features", "certified", "measured")
    table(f"error in units of max|v|; measured on {SAMPLED} random tokens", columns, rows, columns)


def _crossover_line(found: Sequence[Timing], direction: str) -> str:
    place, what = crossover(found, direction), "forward" if direction == "forward" else "with backward"
    fast = next(timing.kernel for timing in found if timing.kernel != "exact")
    if place is None:
        return f"{what}: exact attention is faster up to {max(t.length for t in found):,} tokens."
    powers = [exponent(found, fast, direction, quantity) for quantity in ("seconds", "mib")]
    grows = (
        "" if None in powers else f"; its time grows as n^{powers[0]:.2f}, its memory as n^{powers[1]:.2f}"
    )
    return f"{what}: {fast} is faster from about {place:,.0f} tokens on{grows}."


Action = Annotated[Plan, subcommand("plan")] | Annotated[Bench, subcommand("bench")]


@dataclass(frozen=True, kw_only=True)
class Attention:
    """Plan attention in linear time for a model's heads, or see where it overtakes exact attention."""

    action: Action

    def run(self) -> None:
        """Do what is asked."""
        self.action.run()
