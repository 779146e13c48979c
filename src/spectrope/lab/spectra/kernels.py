"""Tables of the Toeplitz matrices of an encoding itself."""

from collections.abc import Callable, Sequence

import polars as pl
import torch

from spectrope.core import UnsupportedError
from spectrope.encodings import Encoding
from spectrope.lab.ablation.methods import TablesByName
from spectrope.lab.probes.kernel import EncodingKernel, encoding_kernels, kernel_spectrum
from spectrope.models import Decoder
from spectrope.spectral import (
    SymbolMatch,
    ToeplitzOperator,
    eigenvalue_match,
    fitted_rate,
    singular_value_match,
)

ANGLES = 257  # Number of equispaced angles from 0 to pi at which symbols are tabulated.
LONGEST = 256  # Positions of the largest section whose whole spectrum is computed.


def own_tables(model: Decoder, n: int) -> TablesByName:
    """Tables of the encoding's own kernels, layer by layer; none if it has none."""
    config = model.config
    layers: dict[Encoding, list[int]] = {}
    for layer in range(config.n_layers):
        layers.setdefault(model.encoding_of(layer), []).append(layer)
    parts: list[tuple[str, TablesByName]] = []
    for encoding, members in layers.items():
        try:
            kernels = encoding_kernels(encoding, n, config.n_heads, config.head_dim, config.causal)
        except UnsupportedError:
            continue
        parts.append((numbered(members), kernel_tables(kernels)))
    labelled = [
        {name: table.select(pl.lit(label).alias("layers"), pl.all()) for name, table in tables.items()}
        for label, tables in parts
    ]
    return {name: pl.concat(tables[name] for tables in labelled) for name in (labelled or [{}])[0]}


def kernel_tables(kernels: Sequence[EncodingKernel]) -> TablesByName:
    """Tables "lags", "symbol", "extremes" and "distances" of some kernels."""
    return {
        "lags": lags_table(kernels),
        "symbol": symbol_table(kernels),
        "extremes": extremes_table(kernels),
        "distances": distances_table(kernels),
    }


def lags_table(kernels: Sequence[EncodingKernel]) -> pl.DataFrame:
    """A row per kernel and lag from 0 on: the entry of the matrix there."""
    return pl.concat(
        pl.DataFrame({"lag": range(kernel.operator.n), "value": kernel.values.numpy()}).select(
            *_named(kernel), pl.all()
        )
        for kernel in kernels
    )


def symbol_table(kernels: Sequence[EncodingKernel]) -> pl.DataFrame:
    """A row per kernel and angle in radians: the truncated symbol and its Fejér mean."""
    theta, points = torch.linspace(0, torch.pi, ANGLES, dtype=torch.float64), 2 * (ANGLES - 1)
    tables = []
    for kernel in kernels:
        symbol, fejer = (one.symbol_on_grid(points) for one in (kernel.operator, kernel.operator.fejer()))
        columns = {"theta": theta, "symbol": symbol, "fejer": fejer}
        values = pl.DataFrame({name: column.numpy() for name, column in columns.items()})
        tables.append(values.select(*_named(kernel), pl.all()))
    return pl.concat(tables)


def extremes_table(kernels: Sequence[EncodingKernel]) -> pl.DataFrame:
    """A row per kernel: both extreme eigenvalues, and the bracket that certifies each."""
    tables = []
    for kernel in kernels:
        extremes = kernel_spectrum(kernel)
        row = {
            "n": kernel.operator.n,
            "smallest_estimate": extremes.smallest_estimate,
            "largest_estimate": extremes.largest_estimate,
            **vars(extremes.symbol),
        }
        tables.append(pl.DataFrame([row]).select(*_named(kernel), pl.all()))
    return pl.concat(tables)


def distances_table(kernels: Sequence[EncodingKernel]) -> pl.DataFrame:
    """A row per kernel, spectrum and section: how far the spectrum is from the symbol.

    Spectrum "eigenvalue" (Szegő) refers to the matrix, "singular value" (Avram and Parter) to its lower
    triangle, as in causal attention. Sections have a quarter, half and all of the positions, up to
    `LONGEST`; "rate" is p of the law n^-p fitted to their distances.
    """
    return pl.concat(
        pl.DataFrame(rows, schema_overrides={"rate": pl.Float64}).select(*_named(kernel), pl.all())
        for kernel in kernels
        for rows in (_distances(kernel, "eigenvalue"), _distances(kernel, "singular value"))
    )


def _distances(kernel: EncodingKernel, spectrum: str) -> list[dict[str, object]]:
    match, make = SPECTRA[spectrum]
    longest = min(kernel.operator.n, LONGEST)
    lengths = sorted({max(2, longest // part) for part in (1, 2, 4)})
    matches = [match(make(kernel.values[:n])) for n in lengths]
    rate = fitted_rate(lengths, [one.distance for one in matches])
    return [
        {
            "spectrum": spectrum,
            "n": n,
            "distance": one.distance,
            "scaled": n * one.distance,
            "rate": rate,
            "tail_share": one.tail_share,
            "theorem_applies": one.theorem_applies,
        }
        for n, one in zip(lengths, matches, strict=True)
    ]


SPECTRA: dict[
    str,
    tuple[Callable[[ToeplitzOperator], SymbolMatch], Callable[[torch.Tensor], ToeplitzOperator]],
] = {
    "eigenvalue": (eigenvalue_match, ToeplitzOperator.hermitian),
    "singular value": (singular_value_match, ToeplitzOperator.causal),
}


def numbered(members: Sequence[int]) -> str:
    """Numbers as text: "2", or "0-15" for neighbours, else "0, 2"."""
    first, last = members[0], members[-1]
    if first == last:
        return str(first)
    if last - first == len(members) - 1:
        return f"{first}-{last}"
    return ", ".join(map(str, members))


def _named(kernel: EncodingKernel) -> list[pl.Expr]:
    return [pl.lit(numbered(kernel.heads)).alias("heads"), pl.lit(kernel.kind).alias("kind")]
