"""Terms of the logits of a finished run's heads (Eq. 8), stored with it as tables."""

from collections.abc import Sequence

import numpy as np
import polars as pl
import torch
from jaxtyping import Float
from scipy.stats import false_discovery_control

from spectrope.core import Progress, Watch, unwatched
from spectrope.lab.ablation.methods import TablesByName, TrainedSubject
from spectrope.lab.probes.designs import balanced_sequences
from spectrope.lab.probes.heads import LayerHeads, capture_heads
from spectrope.lab.probes.terms import NUMBERS, LayerTerms, commuting_shares, layer_terms
from spectrope.lab.spectra.heads import Measurement, longest
from spectrope.stats import ends
from spectrope.store import Run
from spectrope.tasks import Batch

HELD_OUT, BALANCED = "held-out", "balanced"
TABLES = ("terms", "assumptions", "term_kernel", "position_factor", "undefined_terms")


def terms(
    run: Run, device: torch.device, plan: Measurement | None = None, watch: Watch = unwatched
) -> TablesByName:
    """Split the logits of a finished run's heads into the terms of Eq. 8, and store the tables with it.

    Two designs are measured: "held-out", the run's own longest held-out examples, in which content and
    position may be confounded, and "balanced", sequences in which they are independent by construction.
    Tables "terms", "assumptions", "term_kernel" and "position_factor" are those of `term_tables`.

    Args:
        run: A finished run.
        device: Device to compute on.
        plan: Size of the measurement; names of tables of a non-default size end in a suffix.
        watch: Progress callback, called with the number of layers done.

    Returns:
        The tables by their names without suffix; those without rows are left out.

    Raises:
        UnsupportedError: If positions are not equally spaced.
        StoreError: If the run's weights cannot be read, or its folder cannot be written.
    """
    with run.lock():
        return _measured(run, device, plan, watch)


def _measured(run: Run, device: torch.device, plan: Measurement | None, watch: Watch) -> TablesByName:
    plan, subject = plan or Measurement(), TrainedSubject.of(run, device, watch)
    config = subject.model.config
    batch, n = longest(subject.held_out, plan.examples)
    balanced = balanced_sequences(batch.inputs[batch.inputs > 0].unique(), n, subject.seed)
    designs = {HELD_OUT: (batch, n), BALANCED: (balanced, int(balanced.lengths[0]))}
    measured: dict[str, list[LayerTerms]] = {}
    for number, (design, (data, width)) in enumerate(designs.items()):
        measured[design] = _layers(
            subject, data.to(device), width, plan.draws, watch, number * config.n_layers
        )
    sizes = {design: len(data) for design, (data, _) in designs.items()}
    tables = term_tables(measured, sizes, commuting_shares(subject.model))
    tables = {name: table for name, table in tables.items() if not table.is_empty()}
    for name in set(TABLES) - set(tables):
        run.remove(f"{name}{plan.mark}")
    for name, table in tables.items():
        run.write_frame(f"{name}{plan.mark}", table)
    return tables


def _layers(
    subject: TrainedSubject, data: Batch, n: int, draws: int, watch: Watch, done: int
) -> list[LayerTerms]:
    found: list[LayerTerms] = []

    def measure(layer: LayerHeads) -> None:
        found.append(layer_terms(layer, data.inputs, n, draws, subject.seed))
        watch(Progress("terms", done + len(found), 2 * len(subject.model.blocks)))

    capture_heads(subject.model, data, measure)
    return found


def term_tables(
    measured: dict[str, list[LayerTerms]],
    examples: dict[str, int],
    commuting: Sequence[Float[np.ndarray, " h"] | None] = (),
) -> TablesByName:
    """Tables of the terms of heads, by design.

    "terms" has a row per design, layer, head and term: its share of the energy of the logits, its covariance
    with the other terms, its own Toeplitz share with that of chance, and the p-value of the permutation test,
    adjusted for false discoveries within its term. "assumptions" has a row per design, layer and head: the
    share of the interaction in the variance of queries and keys (Assumption 3.1), and the share of the form
    that commutes with the rotations of a sinusoidal input term (Remark 3.2). "term_kernel" has a row per lag:
    the position-position term's Toeplitz projection, and the least and greatest entry on that diagonal
    (Assumption 3.2). "position_factor" has a row per lag: the Toeplitz factor that fits the complex logits
    best (G_e) beside the mean rotation. "undefined_terms" says of each layer without terms why.
    """
    tables = {name: [] for name in TABLES}
    for design, layers in measured.items():
        for layer in layers:
            place: dict[str, object] = {"design": design, "layer": layer.layer}
            if layer.reason:
                tables["undefined_terms"].append(place | {"reason": layer.reason})
            for head in range(len(layer.heads)):
                at = place | {"head": head}
                tables["terms"] += _term_rows(layer, head, at, examples[design])
                share = commuting[layer.layer] if layer.layer < len(commuting) else None
                tables["assumptions"].append(_assumptions(layer, head, at, share))
                tables["term_kernel"] += _kernel_rows(layer, head, at)
                tables["position_factor"] += _factor_rows(layer, head, at)
    frames = {name: pl.DataFrame(rows, infer_schema_length=None) for name, rows in tables.items()}
    if not frames["terms"].is_empty():
        frames["terms"] = frames["terms"].with_columns(pl.col("p_value").cast(pl.Float64))
        adjusted = pl.col("p_value").map_batches(_adjusted, return_dtype=pl.Float64)
        frames["terms"] = frames["terms"].with_columns(p_adjusted=adjusted.over("design", "term"))
    return frames


def _adjusted(p: pl.Series) -> pl.Series:
    values, known = p.fill_null(np.nan).to_numpy().copy(), p.is_not_null().to_numpy()
    if known.any():
        values[known] = false_discovery_control(values[known])
    return pl.Series(values, nan_to_null=True)


def _term_rows(
    layer: LayerTerms, head: int, place: dict[str, object], examples: int
) -> list[dict[str, object]]:
    rows = []
    for term, numbers in layer.heads[head].numbers.items():
        row = place | {"term": term}
        for number, name in enumerate(NUMBERS):
            row |= ends(name, numbers.at(number))
        test = layer.heads[head].tests[term]
        row |= {"toeplitz_null": layer.toeplitz_null, "p_value": test and test.p_value}
        rows.append(row | {"positions": layer.n, "examples": examples})
    return rows


def _assumptions(
    layer: LayerTerms, head: int, place: dict[str, object], commuting: Float[np.ndarray, " h"] | None
) -> dict[str, object]:
    shares = layer.heads[head].interaction
    row = place | ends("interaction_q", shares.at(0)) | ends("interaction_k", shares.at(1))
    return row | {"commuting": None if commuting is None else float(commuting[head])}


def _kernel_rows(layer: LayerTerms, head: int, place: dict[str, object]) -> list[dict[str, object]]:
    term = layer.heads[head].position
    columns = zip(layer.lags, term.effect, term.low, term.high, strict=True)
    return [
        place | dict(zip(("lag", "effect", "entry_low", "entry_high"), map(float, row), strict=True))
        for row in columns
    ]


def _factor_rows(layer: LayerTerms, head: int, place: dict[str, object]) -> list[dict[str, object]]:
    record = layer.heads[head]
    if record.factor is None or record.uniform is None:
        return []
    return [
        place
        | {
            "lag": float(lag),
            "real": one.real.item(),
            "imaginary": one.imag.item(),
            "mean_real": mean.real.item(),
            "mean_imaginary": mean.imag.item(),
        }
        for lag, one, mean in zip(layer.lags, record.factor, record.uniform, strict=True)
    ]
