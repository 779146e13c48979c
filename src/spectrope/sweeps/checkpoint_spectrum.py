"""Spectra of a checkpoint's heads, layer by layer."""

from collections.abc import Callable

import polars as pl
from jaxtyping import Int
from torch import Tensor, nn

from spectrope.core.errors import ConfigError
from spectrope.probes.checkpoint_heads import RecordedHeads, capture_checkpoint
from spectrope.probes.constant_content import attention_modules
from spectrope.probes.shares import StateShares, state_shares
from spectrope.probes.spectrum import LayerSpectrum, layer_spectrum
from spectrope.sweeps.ablate import Tables
from spectrope.sweeps.spectrum import kernel_table, shares_table, spectrum_table


def unwatched(done: int, total: int) -> None:
    """The watcher that shows nothing."""


def checkpoint_spectrum(
    model: nn.Module,
    ids: Int[Tensor, "b t"],
    *,
    layers: slice = slice(None),
    draws: int = 199,
    seed: int = 0,
    watch: Callable[[int, int], None] = unwatched,
) -> Tables:
    """Measure the logits of every head of a checkpoint, one layer after the other.

    Tables "spectrum", "kernel" and "shares" are those of a run's `spectrum`, but layers and heads count
    from 0. What needs queries and keys before rotation (contraction, bands, the residual of content times
    position) is not defined here, nor is the test where the model's code shows masked logits alone.

    Args:
        model: A Hugging Face model with one stack of layers.
        ids: Tokens without padding, the same number in each of at least two sequences.
        layers: Which layers to measure.
        draws: Permutations in the test of Toeplitz shares.
        seed: Of the permutations.
        watch: Called with the numbers of layers measured and in all.

    Raises:
        ConfigError: If there are fewer than two sequences or tokens, or none of the layers.
        UnsupportedError: If no attention kernel could be observed, or a mask is neither causal nor full.
    """
    if min(ids.shape) < 2:
        raise ConfigError(f"spectra need two sequences of two tokens; got {ids.shape[0]} of {ids.shape[1]}.")
    modules = attention_modules(model)
    chosen = range(len(modules))[layers]
    if not chosen:
        raise ConfigError(f"layers must take at least one of 0 to {len(modules) - 1}; got none.")
    spectra: list[LayerSpectrum] = []
    states: list[StateShares] = []

    def measure(layer: RecordedHeads) -> None:
        if layer.layer not in chosen:
            return
        spectra.append(layer_spectrum(layer, ids.shape[1], draws, seed))
        assert layer.ctx.x_q is not None
        states.append(state_shares(layer.ctx.x_q, ids))
        watch(len(spectra), len(chosen))

    capture_checkpoint(model, modules, ids.to(next(model.parameters()).device), measure)
    return {
        "spectrum": _from_0(spectrum_table(spectra, len(ids)), "layer", "head"),
        "shares": shares_table(states).with_columns(layer=pl.col("layer") - 1 + chosen.start),
        "kernel": _from_0(kernel_table(spectra), "layer", "head"),
    }


def _from_0(table: pl.DataFrame, *columns: str) -> pl.DataFrame:
    """Numbers as a checkpoint counts them."""
    return table.with_columns(pl.col(columns) - 1)
