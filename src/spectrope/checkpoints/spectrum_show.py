"""`spectrope spectrum` on a checkpoint: what its heads' logits owe to the lag."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor, nn

from spectrope.checkpoints.adapters import Tokenizer, drawable_tokens, encoded, parse_layers
from spectrope.checkpoints.language import read_texts, whole_sequences
from spectrope.checkpoints.spectrum import checkpoint_spectrum
from spectrope.console import counted, frame, show_heads
from spectrope.core import ConfigError, numpy_stream
from spectrope.lab import Tables

LENGTH, TOKENS = 64, 64  # Positions, and different tokens drawn, so that each recurs at many positions.


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
        quantities: Of heads, beside the installed ones; file.py:Class is run.
    """

    texts: Path | None
    examples: int
    length: int
    layers: str | None
    draws: int
    batch: int | None
    quantities: tuple[str, ...] = ()

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
                quantities=self.quantities,
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
    named = ["role", "layer"] if "role" in measured.columns else ["layer"]
    show_heads(measured, f"{first['examples']} sequences of {first['positions']} tokens", [*named, "head"])
    shares = tables["shares"].pivot("part", index=named, values="share")
    frame("shares of the variance of hidden states", shares)
