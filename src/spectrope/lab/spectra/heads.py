"""Spectra of a finished run's heads, stored with it as tables."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
import torch
from polars.exceptions import PolarsError
from scipy.stats import false_discovery_control

from spectrope.core import ConfigError, Progress, StoreError, Watch, require_least, unwatched
from spectrope.lab.ablation.methods import TablesByName, TrainedSubject
from spectrope.lab.probes.controls import shares_without_encoding, shuffled, toeplitz_shares
from spectrope.lab.probes.heads import LayerHeads, capture_heads
from spectrope.lab.probes.shares import SHARES, StateShares, state_shares
from spectrope.lab.probes.spectrum import LayerSpectrum, layer_spectrum
from spectrope.lab.quantities.base import QUANTITIES, installed_quantities
from spectrope.lab.sizes import fullest, size_mark
from spectrope.lab.spectra.eigenvalues import eigenvalue_tables
from spectrope.lab.spectra.kernels import own_tables
from spectrope.lab.stamps import with_digests
from spectrope.stats import ends, holm, rank_correlation
from spectrope.store import Run
from spectrope.tasks import Batch

SOMETIMES = frozenset({"bands", "correlation", "lags", "symbol", "extremes", "distances"})  # Others, always.


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """Size of a measurement of spectra."""

    examples: int = 64  # The longest held-out ones; the shortest of them determines the number of positions.
    draws: int = 199  # Permutations in the test of Toeplitz shares.
    quantities: tuple[str, ...] = ()  # In addition to the installed ones; file.py:Class is executed.

    def __post_init__(self) -> None:
        object.__setattr__(self, "quantities", tuple(map(QUANTITIES.resolve, self.quantities)))
        require_least(self, 4, "examples")
        require_least(self, 1, "draws")

    @property
    def mark(self) -> str:
        """Suffix of the names of its tables, empty at the default size."""
        usual = (self.examples, self.draws) == (Measurement.examples, Measurement.draws)
        return "" if usual else size_mark(self.examples, self.draws)

    @property
    def names(self) -> tuple[str, ...]:
        """All quantities that are measured."""
        return tuple(dict.fromkeys((*installed_quantities(), *self.quantities)))


def spectrum(
    run: Run, device: torch.device, plan: Measurement | None = None, watch: Watch = unwatched
) -> TablesByName:
    """Measure the spectra of a finished run on held-out examples, and store the tables with it.

    Table "spectrum" has one row per layer and head, with two controls: the Toeplitz share on shuffled tokens,
    and that with the encoding disabled in every layer. "bands" has one row per band of frequencies, and
    "kernel" one per lag. "eigenvalues" and "szego" compare the spectrum of that kernel with its symbol.
    "shares" has three rows per layer. "lags", "symbol", "extremes" and "distances" describe the encoding's
    own kernels, if it has any. "correlation" has the rank correlation of each quantity with the drops, if the
    run has been ablated.

    Args:
        run: A finished run.
        device: Device to compute on.
        plan: Size of the measurement; names of tables of a non-default size end in a suffix.
        watch: Progress callback, called with the number of layers done.

    Returns:
        The tables by their names without suffix.

    Raises:
        UnsupportedError: If positions are not equally spaced.
        StoreError: If the run's weights or drops cannot be read, or its folder cannot be written.
    """
    with run.lock():
        return _measured(run, device, plan, watch)


def _measured(run: Run, device: torch.device, plan: Measurement | None, watch: Watch) -> TablesByName:
    drops = _drops(run)
    plan, subject = plan or Measurement(), TrainedSubject.of(run, device, watch)
    batch, n = longest(subject.held_out, plan.examples)
    spectra: list[LayerSpectrum] = []
    states: list[StateShares] = []

    def measure(layer: LayerHeads) -> None:
        spectra.append(layer_spectrum(layer, n, plan.draws, subject.seed, plan.names))
        assert layer.ctx.x_q is not None
        states.append(state_shares(layer.ctx.x_q[:, :n], batch.inputs[:, :n]))
        watch(Progress("spectrum", len(spectra), len(subject.model.blocks)))

    capture_heads(subject.model, batch.to(device), measure)
    tables = {
        "spectrum": with_digests(
            spectrum_table(spectra, len(batch)).with_columns(_controls(subject, batch.to(device), n)),
            *(QUANTITIES[name] for name in plan.quantities),
        ),
        "shares": shares_table(states),
        "kernel": kernel_table(spectra),
        **eigenvalue_tables(spectra),
        **_unless_empty(bands=bands_table(spectra)),
        **own_tables(subject.model, n),
    }
    if drops is not None:
        correlations = correlation_table(tables["spectrum"], drops, tables.get("bands"))
        tables |= _unless_empty(correlation=correlations)
    for name in SOMETIMES - set(tables):
        run.remove(f"{name}{plan.mark}")
    for name, table in reversed(tables.items()):  # The first tells that all are there.
        run.write_frame(f"{name}{plan.mark}", table)
    return tables


def _drops(run: Run) -> pl.DataFrame | None:
    """The drop of each head, where the run has been ablated.

    Raises:
        StoreError: If the table has other columns.
    """
    mark = fullest(run, "ablation")
    if mark is None:
        return None
    name, kinds = f"ablation{mark}", {"layer": pl.Int64, "head": pl.Int64, "drop": pl.Float64}
    try:
        return run.frame(name).select(pl.col(column).cast(kind) for column, kind in kinds.items())
    except PolarsError:
        raise StoreError(
            f"run {run.id}: table {name!r} does not hold a layer, a head and a drop in each row; "
            f"`spectrope ablate` makes it again."
        ) from None


def _controls(subject: TrainedSubject, batch: Batch, n: int) -> list[pl.Series]:
    """Columns of Toeplitz shares on shuffled tokens and without encoding, with their intervals."""
    mixed = toeplitz_shares(subject.model, shuffled(batch, subject.seed), n)
    off = shares_without_encoding(subject.model, batch, n)
    rows = [
        ends("toeplitz_shuffled", mixed[layer].at(head)) | ends("toeplitz_off", off[layer].at(head))
        for layer in range(len(mixed))
        for head in range(subject.model.config.n_heads)
    ]
    return pl.DataFrame(rows, schema=dict.fromkeys(rows[0], pl.Float64)).get_columns()


def longest(data: Batch, examples: int) -> tuple[Batch, int]:
    """The longest examples, without common padding, and the number of tokens that all of them have.

    Raises:
        ConfigError: If there are fewer than two examples, or they have fewer than two tokens.
    """
    order = data.lengths.argsort(descending=True, stable=True)[:examples]
    batch = data[order].trimmed()
    n = int(batch.lengths.min())
    if len(batch) < 2 or n < 2:
        raise ConfigError(
            f"spectra need at least two examples of at least two tokens; got {len(batch)} of {n}."
        )
    return batch, n


def spectrum_table(spectra: Sequence[LayerSpectrum], examples: int) -> pl.DataFrame:
    """A row per layer and head, counted from 0: every quantity with its interval, and the test's p-value.

    Adjusted p-values bound the rate of false discoveries among all heads (Benjamini and Hochberg, 1995).
    """
    rows = []
    for layer in spectra:
        for head, (record, test) in enumerate(zip(layer.heads, layer.tests, strict=True)):
            row: dict[str, float | int | None] = {"layer": layer.layer, "head": head}
            for name, interval in record.items():
                row |= ends(name, interval)
            row |= {"toeplitz_null": layer.toeplitz_null}
            row |= {"toeplitz_null_mean": test and test.null_mean, "p_value": test and test.p_value}
            rows.append(row | {"positions": layer.n, "examples": examples})
    types = {name: pl.Float64 for name in rows[0] if name not in ("layer", "head", "positions", "examples")}
    table = pl.DataFrame(rows, schema_overrides=types, infer_schema_length=None)
    known = table["p_value"].is_not_null().to_numpy()
    adjusted = np.full(len(known), np.nan)
    adjusted[known] = false_discovery_control(table["p_value"].drop_nulls().to_numpy())
    return table.with_columns(p_adjusted=pl.Series(adjusted, nan_to_null=True))


def bands_table(spectra: Sequence[LayerSpectrum]) -> pl.DataFrame:
    """A row per layer, head and band; frequencies in radians per position."""
    return pl.DataFrame(
        {
            "layer": layer.layer,
            "head": head,
            "band": band,
            "frequency_low": low,
            "frequency_high": high,
            **ends("share", bands.shares.at(band)),
            **ends("massive_queries", bands.queries.at(band)),
            **ends("massive_keys", bands.keys.at(band)),
        }
        for layer in spectra
        for head, bands in enumerate(layer.bands)
        if bands is not None
        for band, (low, high) in enumerate(bands.frequencies.tolist())
    )


def shares_table(states: Sequence[StateShares]) -> pl.DataFrame:
    """A row per layer and part of the hidden states; the residual has no null."""
    rows = []
    for layer, shares in enumerate(states):
        nulls = {"content": shares.content_null, "position": shares.position_null, "residual": None}
        for part in SHARES:
            rows.append(
                {"layer": layer, "part": part, **ends("share", getattr(shares, part)), "null": nulls[part]}
            )
    return pl.DataFrame(rows, infer_schema_length=None)


def kernel_table(spectra: Sequence[LayerSpectrum]) -> pl.DataFrame:
    """A row per layer, head and lag: what lags add to logits, in logit units, with mean 0 over lags."""
    return pl.DataFrame(
        {
            "layer": layer.layer,
            "head": head,
            "lag": lag,
            **ends("effect", layer.kernel.at(head, place)),
        }
        for layer in spectra
        for head in range(len(layer.heads))
        for place, lag in enumerate(layer.lags.tolist())
    )


def correlation_table(
    measured: pl.DataFrame, ablation: pl.DataFrame, bands: pl.DataFrame | None = None
) -> pl.DataFrame:
    """A row per quantity and scope: the rank correlation of the quantity with the drop, over heads.

    The share of energy of each band of frequencies is a quantity, "band_0" of the highest frequencies. Scope
    "heads" compares all heads, scope "within layers" heads of one layer alone; a quantity that is undefined
    for a head, or the same for all, has no row. Holm's adjustment is over the rows of one scope.
    """
    joined = measured.join(ablation.select("layer", "head", "drop"), on=["layer", "head"])
    names = [name for name in QUANTITIES if name in measured.columns]
    if bands is not None:
        shares = band_shares(bands)
        joined = joined.join(shares, on=["layer", "head"], how="left")
        names += shares.columns[2:]
    rows = [row for name in names for row in _correlations(joined, name)]
    if not rows:
        return pl.DataFrame()
    parts = pl.DataFrame(rows).partition_by("scope", maintain_order=True)
    return pl.concat(part.with_columns(p_adjusted=holm(part["p_value"].to_numpy())) for part in parts)


def band_shares(bands: pl.DataFrame) -> pl.DataFrame:
    """A row per layer and head, a column per band, from table "bands"."""
    named = bands.with_columns(band=pl.format("band_{}", "band"))
    return named.pivot("band", index=["layer", "head"], values="share")


def _correlations(joined: pl.DataFrame, name: str) -> Iterator[dict[str, object]]:
    """Rows of one quantity, where there is a correlation."""
    known = joined.filter(pl.col(name).is_finite() & pl.col("drop").is_finite())
    if len(known) < 4:
        return
    x, y, layers = (known[column].to_numpy() for column in (name, "drop", "layer"))
    for scope, groups in (("heads", None), ("within layers", layers)):
        correlation = rank_correlation(x, y, groups)
        if correlation is not None:
            row = {"quantity": name, "scope": scope, **ends("rho", correlation.rho)}
            yield row | {"p_value": correlation.p_value, "n": correlation.n}


def _unless_empty(**tables: pl.DataFrame) -> TablesByName:
    return {name: table for name, table in tables.items() if not table.is_empty()}
