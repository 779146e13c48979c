"""Reference of the tables that runs keep: their columns, as the code declares and writes them."""

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

import spectrope
from spectrope.figures.tables import ABLATION, MEASURED, METRICS
from spectrope.front.runs import SCHEMA
from spectrope.lab import QUANTITIES

TABLES = {
    "metrics": "A row per evaluation while a run trains.",
    "ablation": "A row per silenced head (`spectrope ablate`).",
    "deposit": "A row per layer: what the deposit rule finds.",
    "cumulative": "A row per head silenced after the others (`--method cumulative`).",
    "screen": "A row per head: its first-order estimate beside its drop (`--method screen`).",
    "spectrum": "A row per head: averages over examples of its spectral quantities (`spectrope spectrum`).",
    "correlation": "A row per quantity and scope: how well it ranks heads by their drops.",
    "bands": "A row per head and band of frequencies of a rotation.",
    "shares": "A row per layer and part of its hidden states.",
    "kernel": "A row per head and lag: what the lag adds to its logits.",
    "terms": "A row per design, head and term of equation 8 (`spectrope spectrum --terms`).",
    "assumptions": "A row per design and head: what the assumptions behind these terms leave out.",
    "term_kernel": "A row per design, head and lag: the position-position term over its Toeplitz projection.",
    "position_factor": "A row per design, head and lag: the Toeplitz factor that fits complex logits best.",
    "undefined_terms": "A row per design and layer without such terms: why.",
    "extrapolation": "A row per scaling and length: scores on longer examples (`compare --lengths`).",
    "lags": "A row per lag of a content-free kernel.",
    "symbol": "A row per angle: the symbol of a content-free kernel.",
    "extremes": "A row per kernel and length: its extreme eigenvalues and their bounds.",
    "eigenvalues": "A row per eigenvalue of a head's mean kernel, beside the symbol.",
    "szego": "A row per head and length: distance of eigenvalues from the symbol (Szegő).",
    "distances": "The same for the content-free kernels.",
    "learning": "A row per step and head, recorded by `--probe learning`, whose settings are in table "
    "`learning-settings`.",
    "gradients": "A row per step, head and frequency: where the gradient's energy lies.",
    "participation": "A row per step and layer: effective number of heads.",
    "tuning": "A row per learning rate of a grid (`compare --tune`).",
}
MEANINGS = {
    "ablated": "accuracy without the head, as a fraction",
    "accuracy": "accuracy, as a fraction",
    "band": "number of the band, from 0, slowest last",
    "ceiling": "best accuracy that the labels allow (Bayes accuracy), in percent",
    "chosen": "whether this rate was chosen",
    "commuting": "share of the head's form that commutes with the rotations of sinusoids",
    "condition": "whose confounds the run keeps",
    "covariance": "covariance of the term with all others, as a share of the energy of the logits",
    "deposit": "whether the layer has a single-head deposit",
    "design": "sequences that were measured: held-out, balanced, random tokens or texts",
    "distance": "distance of the sorted eigenvalues from the sorted symbol, in logits",
    "diverged": "whether the held-out loss is not finite",
    "drop": "intact minus ablated accuracy, in percentage points; in table deposit, on the examples that did "
    "not choose the head",
    "effect": "what the lag adds to the logits, with mean 0 over lags, in logits",
    "effective_entropy": "effective number of heads: exponential of the entropy of the shares",
    "effective_participation": "effective number of heads: inverse participation ratio of the shares",
    "encoding": "name of the encoding",
    "energy": "squared norm of the gradient at the frequency",
    "entry_high": "greatest entry of the term at the lag, in logits",
    "entry_low": "least entry of the term at the lag, in logits",
    "epoch": "passes over the training data so far",
    "examples": "examples that were averaged",
    "factor": "length of the examples, as a multiple of the trained length",
    "fejer": "Fejér mean of the symbol at the angle, in logits",
    "fill": "what took the place of the head's output",
    "finished": "whether the run is finished",
    "frequency": "radians per position",
    "frequency_high": "fastest frequency of the band, radians per position",
    "frequency_low": "slowest frequency of the band, radians per position",
    "gap": "drop of the chosen head minus the largest other drop of the layer (0 if none is positive), in "
    "percentage points, on the examples that did not choose it; negative if another head is ahead there",
    "gini": "Gini index of the shares of the drop",
    "gradient": "effective number of heads by energy of the gradient",
    "gradient_energy": "squared norm of the head's gradient",
    "gradient_share": "the head's share of its layer's gradient energy",
    "head": "head, from 0; in table deposit, the one with the largest drop on a random half of the examples",
    "head_share": "share of the head's gradient energy at the frequency",
    "heads": "heads that share the kernel",
    "high": "upper end of the 95 % interval, in the unit of what it is an interval of",
    "imaginary": "imaginary part of the Toeplitz factor that fits best",
    "intact": "accuracy with all heads, as a fraction",
    "interaction_k": "share of the interaction in the variance of the keys",
    "interaction_q": "share of the interaction in the variance of the queries",
    "kind": "which kernel (bias, rotation, product or input), or eigenvalue or singular value",
    "laboratory": "whose kind of experiment it is: decoder or grokking",
    "lag": "position of the query minus that of the key, positive in the past",
    "largest_estimate": "largest eigenvalue, by Lanczos",
    "layer": "layer, from 0",
    "layers": "layers that share the kernel",
    "learning_rate": "learning rate of the run",
    "epochs": "passes over the training data in the whole run",
    "n_train": "number of training examples",
    "loss": "mean cross entropy, in nats",
    "loss_increase_estimate": "first-order estimate of what silencing the head adds to the loss, in nats",
    "low": "lower end of the 95 % interval, in the unit of what it is an interval of",
    "lower_bound": "proven lower bound of all eigenvalues",
    "massive_keys": "largest norm of a coordinate of the keys over tokens, over the mean of all coordinates",
    "massive_queries": "the same of the queries",
    "max_bound": "proven upper bound of the symbol on the grid",
    "max_share": "largest share of the layer's total drop",
    "mean_imaginary": "imaginary part of the mean rotation over frequencies",
    "mean_real": "real part of the mean rotation over frequencies",
    "min_bound": "proven lower bound of the symbol on the grid",
    "n": "examples, or heads, or positions, that the row rests on",
    "n_changed": "how many heads are silenced, this one included",
    "null": "what chance gives",
    "p": "p-value of the layer, one-sided",
    "p_adjusted": "p-value after correction for several tests",
    "p_value": "p-value before correction",
    "pair": "number of the rotated pair of coordinates, from 0",
    "parameters": "number of trained parameters",
    "part": "part of the hidden states: position, content or residual",
    "path": "folder of the run",
    "positional_null": "what chance gives for the positional share",
    "positional_share": "share of the gradient that a kernel of the lag alone explains",
    "positions": "positions of the examples that were measured",
    "precision": "precision of matrix products: float32 or bfloat16",
    "quantity": "name of a quantity, as in table spectrum",
    "rank": "number of the eigenvalue, ascending from 0",
    "rate": "learning rate; in table distances, p of the law n^-p fitted to the distances",
    "real": "real part of the Toeplitz factor that fits best",
    "reason": "why the logits have no such terms",
    "relative": "distance over the width of the symbol's range",
    "rho": "Spearman's rank correlation with the drops",
    "run": "id of the run",
    "scale": "size of model and data",
    "scaled": "distance times the length",
    "scaling": "how positions were scaled at inference; none is the model as it was trained",
    "scope": "which heads are ranked together: heads, or heads within layers",
    "seconds": "seconds of training",
    "seed": "seed of data, initial weights, batch order and dropout",
    "share": "share of the total; in table deposit, the chosen head's share of the layer's positive drops, "
    "on the examples that did not choose it",
    "single": "drop of the head silenced alone, in percentage points",
    "smallest_estimate": "smallest eigenvalue, by Lanczos",
    "spectrum": "which spectrum is compared with the symbol: eigenvalues or singular values",
    "split": "train or test (held out)",
    "step": "optimiser steps so far",
    "symbol": "value of the symbol, in logits",
    "tail_share": "share of the kernel's total modulus at lags beyond half of the length",
    "task": "name of the task",
    "term": "term of the logits, the query's part first",
    "test": "held-out accuracy, in percent",
    "test_loss": "held-out loss, in nats",
    "theorem_applies": "whether the assumptions of Szegő's theorem hold",
    "theta": "angle in radians per position",
    "toeplitz_null": "mean Toeplitz share of independent entries",
    "toeplitz_null_mean": "mean Toeplitz share under random permutations",
    "toeplitz_off": "Toeplitz share without the encoding",
    "toeplitz_shuffled": "Toeplitz share with the tokens shuffled",
    "train": "accuracy on training data, in percent",
    "tuning": "trial or chosen, where the rate is of a grid",
    "upper_bound": "proven upper bound of all eigenvalues",
    "value": "eigenvalue, or kernel at the lag, in logits",
    "weight": "effective number of heads by energy of the weights",
    "weight_energy": "squared norm of the product of query and key weights",
}
KERNELS = {"tangent": "tangent kernel", "newton": "Gauss-Newton kernel"}
SPECTRA = {"largest": "largest eigenvalue", "trace": "trace", "effective_rank": "effective rank"}


def page(runs: Path) -> str:
    """The page in Markdown.

    Args:
        runs: Folder of finished runs that have every table.

    Raises:
        KeyError: If the meaning of a column is missing here.
    """
    parts = [
        "# Tables and their columns",
        "A run is a folder; its tables are Parquet files in it. `run.frame(name)` reads one as a polars "
        "frame, and any other reader of Parquet does, too. A name may end in the size of the measurement, "
        "such as `spectrum-16-examples-19-draws`. Layers and heads count from 0. `X_low` and `X_high` are "
        "the ends of the 95 % interval of `X`.",
        "## `sp.table`",
        "`spectrope.table(runs)` and `to_frame()` of a comparison: a row per run.",
        _columns(SCHEMA),
    ]
    stored = _stored(runs)
    for name, text in TABLES.items():
        declared = {"metrics": METRICS, "ablation": ABLATION}.get(name, MEASURED.get(name, {}))
        parts += [f"## `{name}`", text, _columns(stored.get(name, {}) | declared)]
    return "\n\n".join(parts) + "\n"


def _stored(folder: Path) -> dict[str, dict[str, Any]]:
    """The columns of the tables that some runs keep, by table, with the types that hold values."""
    found: dict[str, dict[str, Any]] = {}
    for run in spectrope.runs(folder):
        for frame in (name for name in run.frames if not name.endswith("-settings")):
            columns = found.setdefault(frame.split("-")[0], {})
            columns |= {
                k: v for k, v in run.frame(frame).schema.items() if columns.get(k, pl.Null) == pl.Null
            }
    return found


def _columns(schema: Mapping[str, Any]) -> str:
    lines = [f"| `{name}` | {_type(kind)} | {meaning(name, schema)} |" for name, kind in schema.items()]
    return "\n".join(("| column | type | what it holds |", "| --- | --- | --- |", *lines))


def _type(kind: Any) -> str:
    kind = kind() if isinstance(kind, type) else kind
    names = {
        pl.Int64(): "integer",
        pl.Float64(): "number",
        pl.Boolean(): "true or false",
        pl.String(): "text",
    }
    return names.get(kind, "number")


def meaning(name: str, schema: Mapping[str, Any]) -> str:
    """What a column holds.

    Raises:
        KeyError: If that is said nowhere.
    """
    if name in MEANINGS:
        return MEANINGS[name]
    if name in QUANTITIES:
        return (inspect.getdoc(QUANTITIES[name]) or "").partition("\n")[0].rstrip(".")
    stem, _, end = name.rpartition("_")
    if end in ("low", "high"):
        return f"{'lower' if end == 'low' else 'upper'} end of the 95 % interval of `{stem}`"
    kernel, _, spectrum = name.partition("_")
    plain = " of the logits without rotation" if spectrum.startswith("plain_") else ""
    return f"{SPECTRA[spectrum.removeprefix('plain_')]} of the head's {KERNELS[kernel]}{plain}"
