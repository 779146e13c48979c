"""`spectrope spectrum` on a checkpoint: what its heads' logits owe to the lag."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import torch
from jaxtyping import Int
from torch import Tensor, nn

from spectrope.checkpoints.adapters import Tokenizer, drawable_tokens, encoded, parse_layers
from spectrope.checkpoints.language import read_texts, whole_sequences
from spectrope.checkpoints.spectrum import checkpoint_spectrum
from spectrope.console import counted, explain, frame
from spectrope.core import ConfigError, numpy_stream
from spectrope.lab import Tables

LENGTH, TOKENS = 64, 64  # Positions, and different tokens drawn, so that each recurs at many positions.
HEADS_SHOWN = 24
COLUMNS = {
    "toeplitz": "Toeplitz",
    "toeplitz_content": "content",
    "p_adjusted": "p",
    "toeplitz_raw": "raw",
    "contraction_spectral": "contr.",
    "stable_rank": "rank",
    "factorisation": "residual",
}


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What a checkpoint's heads are measured on.

    Args:
        texts: File with a text per line, or None for random tokens.
        examples: Sequences of random tokens, and most of a file.
        length: Tokens of each; shorter texts are left out.
        layers: Layers to measure, None for all.
        draws: Permutations in the test of Toeplitz shares.
        batch: Sequences in one pass, None for all.
    """

    texts: Path | None
    examples: int
    length: int
    layers: str | None
    draws: int
    batch: int | None

    def tables(self, model: nn.Module, tokenizer: Tokenizer | None) -> Tables:
        """Measure, print, and return the tables."""
        layers = slice(None) if self.layers is None else parse_layers(self.layers)
        ids = self.ids(model, tokenizer)
        with counted("measuring") as watch:
            spectrum = checkpoint_spectrum(
                model,
                whole_sequences(model, ids),
                layers=layers,
                batch=self.batch,
                draws=self.draws,
                watch=watch,
            )
        _show(spectrum)
        return spectrum

    def ids(self, model: nn.Module, tokenizer: Tokenizer | None) -> Int[Tensor, "b t"]:
        """The sequences: random tokens, or the first texts that are long enough."""
        return self._random(model) if self.texts is None else self._of_texts(model, self.texts, tokenizer)

    def _random(self, model: nn.Module) -> Int[Tensor, "b t"]:
        known, rng = drawable_tokens(model), numpy_stream(0, "spectrum", "tokens")
        pool = rng.choice(known, min(TOKENS, len(known)), replace=False)
        return torch.from_numpy(rng.choice(pool, (self.examples, self.length)))

    def _of_texts(self, model: nn.Module, path: Path, tokenizer: Tokenizer | None) -> Int[Tensor, "b t"]:
        if tokenizer is None:
            raise ConfigError("--texts needs the checkpoint's tokenizer, and it has none that can be read.")
        rows = encoded(model, tokenizer, read_texts(path), self.length)
        full = [row for row in rows if len(row) == self.length][: self.examples]
        if len(full) < 2:
            raise ConfigError(
                f"{path} holds {len(full)} texts of {self.length} tokens; spectra need two. Lower --length."
            )
        return torch.from_numpy(np.array(full))


def _show(tables: Tables) -> None:
    measured = tables["spectrum"]
    first = measured.row(0, named=True)
    explain(
        f"{first['examples']} sequences of {first['positions']} tokens; layers and heads count from 0. "
        f"Toeplitz: share of lags in logits, row means removed, {first['toeplitz_null']:.3f} by chance; p: "
        "adjusted for false discoveries; content: without rotation and bias; raw: row means kept; contr.: "
        "largest singular value with rotation over that without; rank: stable rank; residual: of content "
        "times position.",
    )
    known = {old: new for old, new in COLUMNS.items() if measured[old].is_not_null().any()}
    shown = measured.sort("toeplitz", descending=True, nulls_last=True).head(HEADS_SHOWN)
    named = ["role", "layer"] if "role" in measured.columns else ["layer"]
    frame("", shown.select(*named, "head", *(pl.col(old).alias(new) for old, new in known.items())))
    shares = tables["shares"].pivot("part", index=named, values="share")
    frame("shares of the variance of hidden states", shares)
