"""How few parameters and frequency bands training moves, and what becomes of learned biases."""

import polars as pl
import torch
from jaxtyping import Float
from torch import Tensor

from spectrope.core import Progress, UnsupportedError, Watch
from spectrope.encodings import Encoding, complex_pairs
from spectrope.lab.measures.base import TableMeasure
from spectrope.lab.probes.head_factors import projections
from spectrope.lab.probes.rotation import encoding_of_head, steady_rotation
from spectrope.lab.runs import build_model, experiment_of, load_model
from spectrope.models import Decoder
from spectrope.spectral import head_participation
from spectrope.store import Run

MOST = 0.9  # Share of the squared change that the responding parameters hold.


class Movement(TableMeasure, name="movement"):
    """Distribution over parameters and frequencies of what training changes in each head's W_Q and W_K.

    A row per layer and head, with the columns

    - `energy`, the squared norm of the change;
    - `responding`, the least share of the parameters that holds 90 % of it;
    - `bands`, the effective number of rotated pairs of coordinates among which it is spread, 1 if training
      moves one frequency alone, and `pairs`, their number; null without a steady rotation;
    - `bias_before` and `bias_after`, the root mean square over lags of the head's bias, less its mean, before
      and after training, in logits; null without a bias of the lag.
    """

    def table(self, run: Run, device: torch.device, watch: Watch) -> pl.DataFrame:
        """The table.

        Raises:
            UnsupportedError: If attention is not multi-head.
        """
        before, after = build_model(experiment_of(run), device), load_model(run, device)
        rows = []
        for layer, changes in enumerate(_changes(before, after)):
            biases = [_biases(model.encoding_of(layer), model) for model in (before, after)]
            for head, change in enumerate(changes):
                first, last = (None if one is None else one[head].item() for one in biases)
                row = {"layer": layer, "head": head, **_spread(change, after.encoding_of(layer), head)}
                rows.append(row | {"bias_before": first, "bias_after": last})
        watch(Progress("learning", 1, 1))
        numbers = ("energy", "responding", "bands", "bias_before", "bias_after")
        kinds = dict.fromkeys(numbers, pl.Float64) | {"pairs": pl.Int64}
        return pl.DataFrame(rows, schema_overrides=kinds, infer_schema_length=None)


def _changes(before: Decoder, after: Decoder) -> list[Float[Tensor, "h sets k c"]]:
    """What has changed of W_Q and W_K, head by head, of each layer."""
    found = []
    for (then,), (now,) in zip(projections(before), projections(after), strict=True):
        change = (now.parameter - then.parameter)[: now.rows].detach().double().cpu()
        found.append(change.unflatten(0, (now.sets, now.n_heads, -1)).transpose(0, 1))
    return found


def _spread(
    change: Float[Tensor, "sets k c"], encoding: Encoding, head: int
) -> dict[str, float | int | None]:
    """How many parameters, and how many frequencies, share the change of one head."""
    squares = change.square()
    ordered = squares.flatten().sort(descending=True).values.cumsum(0)
    energy = ordered[-1].item()
    responding = (1 + int((ordered < MOST * energy).sum())) / len(ordered) if energy else 0.0
    rotation = steady_rotation(encoding_of_head(encoding, head), change.shape[1])
    if rotation is None:
        return {"energy": energy, "responding": responding, "bands": None, "pairs": None}
    pairs = complex_pairs(squares.sum((0, 2)), rotation.pairs)
    by_pair = pairs.real + pairs.imag
    bands = head_participation(by_pair) * len(by_pair) if energy else 0.0
    return {"energy": energy, "responding": responding, "bands": float(bands), "pairs": len(by_pair)}


@torch.no_grad()
def _biases(encoding: Encoding, model: Decoder) -> Float[Tensor, " h"] | None:
    """Root mean square of each head's bias over the lags of the longest sequences, less its mean."""
    most = model.config.max_length
    first = 0 if model.config.causal else 1 - most
    device = next(model.parameters()).device
    try:
        bias = encoding.lag_bias(torch.arange(first, most, device=device)).double()
    except UnsupportedError:
        return None
    return (bias - bias.mean(0)).square().mean(0).sqrt().cpu()
