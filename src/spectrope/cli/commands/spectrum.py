"""`spectrope spectrum`: the spectra of the heads of a run or a checkpoint, or of an encoding by itself."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import polars as pl
import tyro

from spectrope.checkpoints import LENGTH, Checkpoints, Measured
from spectrope.cli.targets import run_or_checkpoint
from spectrope.console import ROOT, Own, RunsRoot, bars, explain, frame, named, refuse_given, say, show_heads
from spectrope.core import ConfigError, choose_device, require
from spectrope.encodings import ENCODINGS
from spectrope.lab import (
    EncodingKernel,
    Measurement,
    Tables,
    encoding_kernels,
    experiment_of,
    kernel_tables,
    spectrum,
)
from spectrope.models import DecoderConfig
from spectrope.spectral import rope_kernel_eigenvalues
from spectrope.store import Run, disk_errors, write_parquet

POSITIONS = 512


@dataclass(frozen=True, kw_only=True)
class Spectrum(Checkpoints):
    """Measure each head's spectrum in a trained run or a checkpoint, or bound the spectrum of an encoding."""

    target: Annotated[
        tyro.conf.Positional[str | None],
        tyro.conf.arg(
            name="target", help="Run: id (or its start) or folder. Checkpoint: folder, or cached id."
        ),
    ] = None
    encoding: Annotated[
        str | None,
        tyro.conf.arg(help="No target: the kernel of this encoding as initialised; a name or file.py:Class."),
    ] = None
    length: Annotated[
        int | None,
        tyro.conf.arg(help=f"Positions, with --encoding ({POSITIONS}) or of a checkpoint ({LENGTH})."),
    ] = None
    heads: Annotated[int, tyro.conf.arg(help="Heads, with --encoding.")] = 8
    out: Annotated[
        Path | None, tyro.conf.arg(help="Folder for the tables as parquet; a run keeps its own.")
    ] = None
    examples: Annotated[
        int, tyro.conf.arg(help="Longest held-out examples of a run, or sequences of a checkpoint.")
    ] = 64
    texts: Annotated[
        Path | None, tyro.conf.arg(help="checkpoint: a file with one text per line; None draws tokens.")
    ] = None
    layers: Annotated[str | None, tyro.conf.arg(help="checkpoint: measure these alone, such as 0:4.")] = None
    batch: Annotated[int | None, tyro.conf.arg(help="checkpoint: sequences in one pass; None takes all.")] = (
        None
    )
    draws: Annotated[int, tyro.conf.arg(help="Permutations in the test of Toeplitz shares.")] = 199
    quantities: Annotated[
        tuple[str, ...],
        tyro.conf.UseAppendAction,
        tyro.conf.arg(help="file.py:Class of a quantity of yours, which is executed; default: none"),
    ] = ()
    own: Own = ()
    runs: RunsRoot = ROOT

    def run(self) -> None:
        """Measure, keep the tables, print them."""
        if (self.target is None) == (self.encoding is None):
            raise ConfigError("spectrum takes a run, a checkpoint or --encoding NAME, one of them.")
        if self.encoding is not None:
            foreign = ("texts", "layers", "batch", "examples", "draws", "dtype", "quantities")
            refuse_given(self, foreign, "is for runs or checkpoints; an encoding by itself has no content.")
            refuse_given(self, ("own",), "goes with a run.")
            self._bound_encoding(self.encoding)
            return
        refuse_given(self, ("heads",), "goes with --encoding; a model has its own.")
        target = run_or_checkpoint(self.target or "", self.runs, self.allow_download, self.own)
        if isinstance(target, Run):
            self._measure_run(target)
        else:
            self._measure_checkpoint(target)

    def _measure_checkpoint(self, source: str) -> None:
        require(self.examples >= 2, self, "examples", "at least 2")
        require(self.draws >= 1, self, "draws", "at least 1")
        length = LENGTH if self.length is None else self.length
        require(length >= 2, self, "length", "at least 2")
        require(self.batch is None or self.batch >= 1, self, "batch", "at least 1")
        plan = Measured(
            texts=self.texts,
            examples=self.examples,
            length=length,
            layers=self.layers,
            draws=self.draws,
            batch=self.batch,
            quantities=self.quantities,
        )
        self._keep(plan.tables(self.open(source), self.tokenizer(source)))

    def _measure_run(self, run: Run) -> None:
        foreign = ("texts", "layers", "batch", "length", "out", "dtype")
        refuse_given(self, foreign, f"is for checkpoints; {run.path} is a run with its own examples.")
        plan = Measurement(examples=self.examples, draws=self.draws, quantities=self.quantities)
        with bars([experiment_of(run).label]) as progress:
            tables = spectrum(run, choose_device(self.device), plan, progress.watch)
        _print_run(tables)
        names = f", named as spectrum{plan.mark}" if plan.mark else ""
        say(f"Tables in {run.path}{names}.")

    def _bound_encoding(self, name: str) -> None:
        length = POSITIONS if self.length is None else self.length
        require(length >= 2, self, "length", "at least 2")
        require(self.heads >= 1, self, "heads", "at least 1")
        chosen = ENCODINGS.config(named(name))()
        model = DecoderConfig(max_length=length, n_heads=self.heads, n_layers=1, encoding=chosen)
        built = model.encoding.build()
        kernels = encoding_kernels(built, length, self.heads, model.head_dim, causal=True)
        tables = kernel_tables(kernels)
        _print_kernels(kernels, tables)
        self._keep(tables)

    def _keep(self, tables: Tables) -> None:
        """Write the tables to --out, if it is given."""
        if self.out is not None:
            with disk_errors(self.out):
                self.out.mkdir(parents=True, exist_ok=True)
            for table, data in tables.items():
                write_parquet(self.out / f"{table}.parquet", data)
            say(f"Tables in {self.out}.")


EIGENVALUES_SHOWN = 8
UNITS = {"bias": "bias in logit units", "rotation": "mean cosine of the rotation"}
THEOREMS = {"eigenvalue": "Szegő's theorem", "singular value": "Avram and Parter's theorem"}
LAGS_SHOWN = (0, 1, 4, 16, 64, 256)


def _print_run(tables: Tables) -> None:
    measured = tables["spectrum"]
    first = measured.row(0, named=True)
    data = f"First {first['positions']} tokens of {first['examples']} held-out examples"
    show_heads(measured, data, ["layer", "head"])
    _print_controls(measured)
    if "bands" in tables:
        _print_bands(tables["bands"])
    _print_szego(tables["szego"])
    shares = tables["shares"].pivot("part", index="layer", values="share")
    frame("shares of the variance of hidden states", shares)
    if "extremes" in tables:
        _print_extremes(tables["extremes"])
    if "correlation" in tables:
        kept = tables["correlation"].select("quantity", "scope", "rho", "rho_low", "rho_high", "p_adjusted")
        frame(
            "rank correlation with the drop, over heads", kept.rename({"rho_low": "low", "rho_high": "high"})
        )
    else:
        explain("No drops that differ between heads; `spectrope ablate` measures drops.")


def _print_controls(measured: pl.DataFrame) -> None:
    """Toeplitz shares beside those of the controls, layer by layer."""
    names = {
        "toeplitz": "as trained",
        "toeplitz_shuffled": "tokens shuffled",
        "toeplitz_off": "encoding off",
        "toeplitz_null": "by chance",
    }
    means = [pl.col(old).mean().alias(new) for old, new in names.items()]
    frame(
        "mean Toeplitz share of the heads of a layer",
        measured.group_by("layer", maintain_order=True).agg(means),
    )


def _print_bands(table: pl.DataFrame) -> None:
    """Shares of energy of the bands of frequencies, layer by layer."""
    named = table.with_columns(pl.col("band").cast(pl.String))
    means = named.pivot("band", index="layer", values="share", aggregate_function="mean")
    low, high = table["frequency_low"].min(), table["frequency_high"].max()
    frame(f"mean energy of bands of frequencies, {high:.3g} to {low:.3g} radians per token; sums to 1", means)


def _print_szego(table: pl.DataFrame) -> None:
    """How far the spectra of heads' kernels are from their symbols, layer by layer."""
    layers = table.group_by("layer", "kind", maintain_order=True).agg(
        pl.len().alias("heads"),
        pl.col("relative").mean().alias("distance, mean"),
        pl.col("relative").max().alias("greatest"),
        pl.col("theorem_applies").sum().alias("theorem applies"),
    )
    frame("spectra of mean kernels against their symbols, in shares of the symbol's range", layers)


def _print_kernels(kernels: Sequence[EncodingKernel], tables: Tables) -> None:
    n = kernels[0].operator.n
    unit = " and ".join(UNITS[kind] for kind in dict.fromkeys(kernel.kind for kernel in kernels))
    kept = [lag for lag in LAGS_SHOWN if lag < n]
    near = tables["lags"].filter(pl.col("lag").is_in(kept))
    by_lag = near.pivot("lag", index=["heads", "kind"], values="value")
    frame(f"{unit} by lag, of {n} positions", _without_lone_kind(by_lag))
    _print_extremes(tables["extremes"])
    _print_distances(tables["distances"])
    for kernel in kernels:
        if kernel.frequencies is not None:
            nonzero = rope_kernel_eigenvalues(kernel.frequencies, n)
            leading = ", ".join(f"{value:.4g}" for value in nonzero[:EIGENVALUES_SHOWN].tolist())
            explain(f"{len(nonzero)} eigenvalues that need not vanish: {leading}, ...")


def _print_extremes(table: pl.DataFrame) -> None:
    """Both ends of each spectrum, between bounds that no eigenvalue passes."""
    labels = [name for name in ("layers", "heads", "kind") if name in table.columns]
    names = {
        "lower_bound": "bound below",
        "smallest_estimate": "least",
        "largest_estimate": "greatest",
        "upper_bound": "bound above",
    }
    shown = table.select(*labels, *(pl.col(old).alias(new) for old, new in names.items()))
    frame("extreme eigenvalues of the encoding's own kernels, and proven bounds", _without_lone_kind(shown))


def _print_distances(table: pl.DataFrame) -> None:
    """How far the longest section's spectra are from the symbol, and whether that must vanish."""
    labels = [name for name in ("layers", "heads", "kind") if name in table.columns]
    names = {"scaled": "n x distance", "rate": "p"}
    columns = [pl.col("distance"), *(pl.col(old).alias(new) for old, new in names.items())]
    longest = table.filter(pl.col("n") == pl.col("n").max())
    shown = _without_lone_kind(longest.select(*labels, "spectrum", *columns))
    n = longest["n"][0]
    frame(f"Wasserstein distance of spectra from symbols at {n} positions, about n^-p", shown)
    for (kind,), part in longest.group_by("spectrum", maintain_order=True):
        barred = part.filter(~pl.col("theorem_applies"))
        if not barred.is_empty():
            explain(
                f"{THEOREMS[str(kind)]} does not apply to {len(barred)} of {len(part)}: at least "
                f"{barred['tail_share'].min():.0%} of their lags' absolute sum lies beyond half of the "
                "positions, so that the distance need not vanish.",
            )


def _without_lone_kind(table: pl.DataFrame) -> pl.DataFrame:
    return table.drop("kind") if table["kind"].n_unique() == 1 else table
