"""Made-up tables in the shape that `spectrope spectrum` keeps."""

import numpy as np
import polars as pl

from spectrope.encodings.base import ENCODINGS
from spectrope.lab.probes.kernel import encoding_kernels
from spectrope.lab.probes.spectrum import LayerSpectrum
from spectrope.lab.spectra.eigenvalues import eigenvalue_tables
from spectrope.lab.spectra.kernels import kernel_tables
from spectrope.stats.interval import Intervals
from spectrope.stats.rank import rank_correlation
from spectrope.store import Run

LAYERS, HEADS, LENGTH = 3, 8, 20
PLACES = [(layer, head) for layer in range(LAYERS) for head in range(HEADS)]


def bounded(name: str, value: float) -> dict[str, float]:
    """A value and an interval around it."""
    return {name: value, f"{name}_low": value - 0.02, f"{name}_high": value + 0.02}


def add_spectra(run: Run) -> Run:
    """Write every spectral table into a run's folder; bands only with rotation, symbols where defined."""
    name, seed = run.config["encoding_name"], run.config["seed"]
    rng = np.random.default_rng([seed, *name.encode()])
    heads = [{"layer": layer, "head": head} for layer, head in PLACES]
    shares = rng.random(len(heads))
    run.write_frame(
        "spectrum", _frame(h | bounded("toeplitz", s) for h, s in zip(heads, shares, strict=True))
    )
    run.write_frame("correlation", _correlation(run, shares))
    run.write_frame("shares", _frame(_shares(rng)))
    effects = (
        h | {"lag": float(lag)} | bounded("effect", rng.normal()) for h in heads for lag in range(LENGTH)
    )
    run.write_frame("kernel", _frame(effects))
    spectra = [_layer(run.frame("kernel").filter(pl.col("layer") == layer)) for layer in range(LAYERS)]
    for table, data in eigenvalue_tables(spectra).items():
        run.write_frame(table, data)
    run.write_frame("terms", _frame(_terms(rng)))
    run.write_frame("term_kernel", _frame(_term_kernel(rng)))
    if name == "rope":
        run.write_frame("bands", _frame(_bands(rng)))
    if name in ("rope", "alibi"):
        own = encoding_kernels(
            ENCODINGS.config(name)().fitted(n_heads=HEADS).build(), LENGTH, HEADS, 16, True
        )
        for table, data in kernel_tables(own).items():
            run.write_frame(table, data.with_columns(layers=pl.lit("0-2")))
    return run


def add_learning(run: Run) -> Run:
    """Write the tables of the probe of learning into a run's folder."""
    rng = np.random.default_rng(run.config["seed"])
    heads, layers = [], []
    for step in range(0, 300, 100):
        for layer in range(LAYERS):
            energies = rng.dirichlet([4] * HEADS)
            shares = {"positional_share": 0.9, "positional_null": 0.95}
            heads += [
                {"step": step, "layer": layer, "head": head, "gradient_share": energy, **shares}
                for head, energy in enumerate(energies.tolist())
            ]
            ratio = float(1 / (HEADS * (energies**2).sum()))
            layers.append({"step": step, "layer": layer, "gradient": ratio, "weight": 0.99})
    run.write_frame("learning", _frame(heads))
    run.write_frame("participation", _frame(layers))
    return run


def _layer(kernel: pl.DataFrame) -> LayerSpectrum:
    """A layer of which only the kernel is known."""
    effects = kernel["effect"].to_numpy().reshape(HEADS, LENGTH)
    known = Intervals(estimate=effects, low=effects, high=effects, level=0.95, method="made up")
    return LayerSpectrum(
        layer=int(kernel["layer"][0]),
        n=LENGTH,
        heads=(),
        tests=(),
        toeplitz_null=0.0,
        bands=(),
        lags=np.arange(float(LENGTH)),
        kernel=known,
    )


def _correlation(run: Run, shares: np.ndarray) -> pl.DataFrame:
    drops = run.frame("ablation")["drop"].to_numpy()
    rows = []
    for scope, groups in (("heads", None), ("within layers", np.repeat(np.arange(LAYERS), HEADS))):
        found = rank_correlation(shares, drops, groups, draws=99)
        ends = {"rho": found.rho.estimate, "rho_low": found.rho.low, "rho_high": found.rho.high}
        rows.append({"quantity": "toeplitz", "scope": scope, **ends})
    return _frame(rows)


def _shares(rng: np.random.Generator):
    for layer in range(LAYERS):
        for part, share in zip(("content", "position", "residual"), rng.dirichlet([2, 2, 1]), strict=True):
            null = None if part == "residual" else 0.02
            yield {"layer": layer, "part": part, "null": null} | bounded("share", float(share))


def _terms(rng: np.random.Generator):
    names = ("content-content", "content-position", "position-content", "position-position", "interaction")
    for design in ("held-out", "balanced"):
        for layer, head in PLACES:
            place = {"design": design, "layer": layer, "head": head}
            for term, share in zip(names, rng.dirichlet([1] * 5), strict=True):
                yield place | {"term": term, "share": float(share), "covariance": 0.0, "toeplitz": 0.5}


def _term_kernel(rng: np.random.Generator):
    for layer, head in PLACES:
        place = {"design": "balanced", "layer": layer, "head": head}
        for lag in range(LENGTH):
            effect = rng.normal()
            yield place | {
                "lag": float(lag),
                "effect": effect,
                "entry_low": effect - 0.1,
                "entry_high": effect + 0.1,
            }


def _bands(rng: np.random.Generator):
    for layer, head in PLACES:
        for band, share in enumerate(rng.dirichlet([1] * 8)):
            ends = {"frequency_low": 10.0**-band, "frequency_high": 10.0**-band}
            yield {"layer": layer, "head": head, "band": band, **ends} | bounded("share", float(share) - 0.01)


def _frame(rows) -> pl.DataFrame:
    return pl.DataFrame(list(rows), infer_schema_length=None)
