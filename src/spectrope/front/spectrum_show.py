"""How spectra of runs and of encodings are shown."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import polars as pl

from spectrope.console import Shown, head_parts, term_parts
from spectrope.lab import EncodingKernel
from spectrope.spectral import rope_kernel_eigenvalues
from spectrope.store import Run

ShownPart = str | tuple[str, pl.DataFrame]
EIGENVALUES_SHOWN = 8
UNITS = {
    "bias": "bias in logit units",
    "rotation": "mean cosine of the rotation",
    "product": "mean product of equal content",
    "input": "product of input terms",
}
THEOREMS = {"eigenvalue": "Szegő's theorem", "singular value": "Avram and Parter's theorem"}
LAGS_SHOWN = (0, 1, 4, 16, 64, 256)


@dataclass(frozen=True, repr=False)
class RunSpectrum(Shown):
    """Spectra of the heads of a run's model, kept with the run.

    Args:
        run: The run.
        mark: Suffix of the names of its tables in the run's folder.
        tables: By their plain names; "spectrum" has a row per head.
    """

    run: Run
    mark: str
    tables: Mapping[str, pl.DataFrame]

    def to_frame(self) -> pl.DataFrame:
        """Table "spectrum": a row per layer and head."""
        return self.tables["spectrum"]

    def parts(self) -> Iterator[ShownPart]:
        tables, measured = self.tables, self.to_frame()
        first = measured.row(0, named=True)
        data = f"First {first['positions']} tokens of {first['examples']} held-out examples"
        yield from head_parts(measured, data, ["layer", "head"])
        yield _controls(measured)
        if "bands" in tables:
            yield _bands(tables["bands"])
        yield _szego(tables["szego"])
        shares = tables["shares"].pivot("part", index="layer", values="share")
        yield "shares of the variance of hidden states", shares
        if "extremes" in tables:
            yield _extremes(tables["extremes"])
        if "correlation" in tables:
            kept = tables["correlation"].select(
                "quantity", "scope", "rho", "rho_low", "rho_high", "p_adjusted"
            )
            names = {"rho_low": "low", "rho_high": "high"}
            yield "rank correlation with the drop, over heads", kept.rename(names)
        else:
            yield (
                "No correlation with drops: they are not measured (`spectrope ablate` does), of fewer than 4 "
                "heads, or all alike."
            )
        names = f", named as spectrum{self.mark}" if self.mark else ""
        yield f"Tables in {self.run.path}{names}."


@dataclass(frozen=True, repr=False)
class RunTerms(Shown):
    """The terms of Eq. 8 in the logits of a run's heads, kept with the run.

    Args:
        run: The run.
        mark: Suffix of the names of its tables in the run's folder.
        tables: By their plain names; "terms" has a row per design, head and term.
    """

    run: Run
    mark: str
    tables: Mapping[str, pl.DataFrame]

    def to_frame(self) -> pl.DataFrame:
        """Table "terms": a row per design, layer, head and term; without rows where no layer has any."""
        return self.tables.get("terms", pl.DataFrame())

    def parts(self) -> Iterator[ShownPart]:
        yield from term_parts(self.tables)
        names = f", named as terms{self.mark}" if self.mark else ""
        yield f"Tables in {self.run.path}{names}."


@dataclass(frozen=True, repr=False)
class EncodingSpectrum(Shown):
    """Toeplitz matrices of an encoding, and their spectra.

    Args:
        kernels: The matrices; heads with equal matrices share one.
        tables: "lags", "symbol", "extremes" and "distances".
    """

    kernels: tuple[EncodingKernel, ...]
    tables: Mapping[str, pl.DataFrame]

    def to_frame(self) -> pl.DataFrame:
        """Table "extremes": one row per kernel, with proven bounds on both ends of its spectrum."""
        return self.tables["extremes"]

    def parts(self) -> Iterator[ShownPart]:
        n = self.kernels[0].operator.n
        unit = " and ".join(UNITS[kind] for kind in dict.fromkeys(kernel.kind for kernel in self.kernels))
        kept = [lag for lag in LAGS_SHOWN if lag < n]
        near = self.tables["lags"].filter(pl.col("lag").is_in(kept))
        by_lag = near.pivot("lag", index=["heads", "kind"], values="value")
        yield f"{unit} by lag, of {n} positions", _without_lone_kind(by_lag)
        yield _extremes(self.tables["extremes"])
        yield from _distances(self.tables["distances"])
        for kernel in self.kernels:
            if kernel.frequencies is not None:
                turning = kernel.frequencies.abs().unique()
                rank = min(n, 2 * len(turning) - int((turning == 0).sum()))
                largest = rope_kernel_eigenvalues(kernel.frequencies, n)[: min(rank, EIGENVALUES_SHOWN)]
                shown = ", ".join(f"{value:.4g}" for value in largest.tolist())
                more = ", ..." if rank > EIGENVALUES_SHOWN else ""
                yield f"{rank} eigenvalues that need not vanish: {shown}{more}"


def _controls(measured: pl.DataFrame) -> ShownPart:
    """Toeplitz shares beside those of the controls, layer by layer."""
    names = {
        "toeplitz": "as trained",
        "toeplitz_shuffled": "tokens shuffled",
        "toeplitz_off": "encoding off",
        "toeplitz_null": "by chance",
    }
    means = [pl.col(old).mean().alias(new) for old, new in names.items()]
    by_layer = measured.group_by("layer", maintain_order=True).agg(means)
    return "mean Toeplitz share of the heads of a layer", by_layer


def _bands(table: pl.DataFrame) -> ShownPart:
    """Shares of energy of the bands of frequencies, layer by layer."""
    named = table.with_columns(pl.col("band").cast(pl.String))
    means = named.pivot("band", index="layer", values="share", aggregate_function="mean")
    low, high = table["frequency_low"].min(), table["frequency_high"].max()
    return f"mean energy of bands of frequencies, {high:.3g} to {low:.3g} radians per token; sums to 1", means


def _szego(table: pl.DataFrame) -> ShownPart:
    """How far the spectra of heads' kernels are from their symbols, layer by layer."""
    layers = table.group_by("layer", "kind", maintain_order=True).agg(
        pl.len().alias("heads"),
        pl.col("relative").mean().alias("distance, mean"),
        pl.col("relative").max().alias("greatest"),
        pl.col("theorem_applies").sum().alias("heads under the theorem"),
    )
    return "spectra of mean kernels against their symbols, in shares of the symbol's range", layers


def _extremes(table: pl.DataFrame) -> ShownPart:
    """Both ends of each spectrum, between bounds that no eigenvalue passes."""
    labels = [name for name in ("layers", "heads", "kind") if name in table.columns]
    names = {
        "lower_bound": "bound below",
        "smallest_estimate": "least",
        "largest_estimate": "greatest",
        "upper_bound": "bound above",
    }
    shown = table.select(*labels, *(pl.col(old).alias(new) for old, new in names.items()))
    return "extreme eigenvalues of the encoding's own kernels, and proven bounds", _without_lone_kind(shown)


def _distances(table: pl.DataFrame) -> Iterator[ShownPart]:
    """How far the longest section's spectra are from the symbol, and whether that must vanish."""
    labels = [name for name in ("layers", "heads", "kind") if name in table.columns]
    names = {"scaled": "n x distance", "rate": "p"}
    columns = [pl.col("distance"), *(pl.col(old).alias(new) for old, new in names.items())]
    longest = table.filter(pl.col("n") == pl.col("n").max())
    shown = _without_lone_kind(longest.select(*labels, "spectrum", *columns))
    n = longest["n"][0]
    yield f"Wasserstein distance of spectra from symbols at {n} positions, about n^-p", shown
    for (kind,), part in longest.group_by("spectrum", maintain_order=True):
        barred = part.filter(~pl.col("theorem_applies"))
        if not barred.is_empty():
            why = (
                f"at least {barred['tail_share'].min():.0%} of their lags' absolute sum lies beyond half of "
                "these positions. Where lags never decay, the distance need not vanish."
                if n > 2
                else "within so few positions nothing decays."
            )
            yield (
                f"At this length, {THEOREMS[str(kind)]} says nothing of {len(barred)} of {len(part)} "
                f"distances: {why}"
            )


def _without_lone_kind(table: pl.DataFrame) -> pl.DataFrame:
    return table.drop("kind") if table["kind"].n_unique() == 1 else table
