"""Tables of the eigenvalues of each head's Toeplitz part, beside the values of its symbol."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import polars as pl
import torch
from jaxtyping import Float

from spectrope.lab.probes.spectrum import LayerSpectrum
from spectrope.spectral import SymbolMatch, ToeplitzOperator, eigenvalue_match, singular_value_match

HeadMatch = tuple[dict[str, int | str], SymbolMatch]
SCHEMA = {"layer": pl.Int64, "head": pl.Int64, "kind": pl.String}


def eigenvalue_tables(spectra: Sequence[LayerSpectrum]) -> dict[str, pl.DataFrame]:
    """Tables "eigenvalues", with a row per value, and "szego", with one per spectrum; in logit units.

    The Toeplitz part of a head is its mean lag effect after removal of row effects, as in table "kernel".
    Kind "eigenvalue" refers to its symmetric extension if attention is causal, else to its symmetric part.
    Kind "singular value" refers to the matrix itself, since all eigenvalues of a causal one equal its
    diagonal.
    """
    matches = [one for layer in spectra for one in _matches(layer)]
    return {
        "eigenvalues": pl.concat([_values(place, match) for place, match in matches]),
        "szego": pl.DataFrame([_distance(place, match) for place, match in matches]),
    }


def _matches(layer: LayerSpectrum) -> Iterator[HeadMatch]:
    causal = bool(layer.lags[0] == 0)
    for head, effects in enumerate(layer.kernel.estimate):
        for kind, match in _kinds(effects, causal).items():
            yield {"layer": layer.layer, "head": head, "kind": kind}, match


def _kinds(effects: Float[np.ndarray, " lags"], causal: bool) -> Mapping[str, SymbolMatch]:
    lags = torch.tensor(effects)
    toeplitz = ToeplitzOperator.causal(lags) if causal else ToeplitzOperator(lags)
    even = ToeplitzOperator.hermitian(lags) if causal else toeplitz.hermitian_part()
    return {"eigenvalue": eigenvalue_match(even), "singular value": singular_value_match(toeplitz)}


def _values(place: Mapping[str, int | str], match: SymbolMatch) -> pl.DataFrame:
    columns = {"rank": range(1, len(match.values) + 1), "value": match.values, "symbol": match.quantiles}
    table = pl.DataFrame({name: np.asarray(column) for name, column in columns.items()})
    return table.select(*(pl.lit(value, SCHEMA[name]).alias(name) for name, value in place.items()), pl.all())


def _distance(place: Mapping[str, int | str], match: SymbolMatch) -> dict[str, object]:
    """The Wasserstein distance, also as a share of the symbol's range, and whether a theorem bounds it."""
    width = (match.quantiles[-1] - match.quantiles[0]).item()
    return {
        **place,
        "n": len(match.values),
        "distance": match.distance,
        "relative": match.distance / width if width > 0 else None,
        "tail_share": match.tail_share,
        "theorem_applies": match.theorem_applies,
    }
