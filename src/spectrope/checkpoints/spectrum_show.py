"""Measure and display the spectra of a checkpoint's heads."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import torch
from jaxtyping import Int
from torch import Tensor, nn

from spectrope.checkpoints.adapters import Tokenizer, drawable_tokens, encoded
from spectrope.checkpoints.language import read_texts, whole_sequences
from spectrope.checkpoints.spectrum import checkpoint_spectrum, checkpoint_terms
from spectrope.console import Shown, head_parts, term_parts
from spectrope.core import ConfigError, Watch, numpy_stream, unwatched

LENGTH, TOKENS = 64, 64  # Positions, and different tokens drawn, so that each recurs at many positions.


@dataclass(frozen=True, repr=False)
class ModelSpectrum(Shown):
    """Spectra of the heads of a model.

    Args:
        tables: "spectrum", with a row per head, "shares", "kernel" and, where all coordinates turn, "bands".
    """

    tables: Mapping[str, pl.DataFrame]

    def to_frame(self) -> pl.DataFrame:
        """Table "spectrum": a row per layer and head."""
        return self.tables["spectrum"]

    def parts(self) -> Iterator[str | tuple[str, pl.DataFrame]]:
        measured = self.to_frame()
        first = measured.row(0, named=True)
        data = f"{first['examples']} sequences of {first['positions']} tokens"
        named = ["role", "layer"] if "role" in measured.columns else ["layer"]
        yield from head_parts(measured, data, [*named, "head"])
        shares = self.tables["shares"].pivot("part", index=named, values="share")
        yield "shares of the variance of hidden states", shares


@dataclass(frozen=True, repr=False)
class ModelTerms(Shown):
    """The terms of Eq. 8 in the logits of a model's heads.

    Args:
        tables: "terms", "assumptions", "term_kernel" and, where all coordinates turn, "position_factor";
            "undefined_terms" where a layer has none.
    """

    tables: Mapping[str, pl.DataFrame]

    def to_frame(self) -> pl.DataFrame:
        """Table "terms": a row per layer, head and term."""
        return self.tables.get("terms", pl.DataFrame())

    def parts(self) -> Iterator[str | tuple[str, pl.DataFrame]]:
        yield from term_parts(self.tables)


def spectrum_of_model(
    model: nn.Module,
    on: Path | Sequence[str] | Tensor | None = None,
    *,
    tokenizer: Tokenizer | None = None,
    examples: int = 64,
    length: int = LENGTH,
    layers: slice = slice(None),
    draws: int = 199,
    batch: int | None = None,
    quantities: Sequence[str] = (),
    terms: bool = False,
    watch: Watch = unwatched,
) -> ModelSpectrum | ModelTerms:
    """Measure the spectra of a model's heads, or split their logits into terms.

    Args:
        model: A Hugging Face model, or an `OwnModel`.
        on: A file with a text per line, texts, token ids without padding, with shape (n, t), or None for
            random tokens.
        tokenizer: The model's, for texts.
        examples: Sequences of random tokens, and most of texts.
        length: Tokens of each; shorter texts are left out, and ids have theirs.
        layers: Layers to measure, of each stack.
        draws: Permutations in the test of Toeplitz shares.
        batch: Sequences in one pass; None takes all.
        quantities: Of heads, beside the installed ones; file.py:Class is run.
        terms: Whether to split logits into the terms of Eq. 8 instead.
        watch: Called with the layers done.

    Raises:
        ConfigError: If there are no such contents.
        UnsupportedError: If no attention kernel could be observed.
    """
    ids = sequences_for(model, on, tokenizer, examples, length)
    data = whole_sequences(model, ids)
    if terms:
        design = "random tokens" if on is None else "tokens" if isinstance(on, Tensor) else "texts"
        split = checkpoint_terms(
            model, data, design=design, layers=layers, draws=draws, batch=batch, watch=watch
        )
        return ModelTerms(split)
    tables = checkpoint_spectrum(
        model,
        data,
        layers=layers,
        batch=batch,
        draws=draws,
        quantities=tuple(quantities),
        watch=watch,
    )
    return ModelSpectrum(tables)


def sequences_for(
    model: nn.Module,
    on: Path | Sequence[str] | Tensor | None,
    tokenizer: Tokenizer | None,
    examples: int,
    length: int,
) -> Int[Tensor, "b t"]:
    """Sequences of one length: those given, random tokens, or the first texts that are long enough."""
    if isinstance(on, Tensor):
        return on
    if on is None:
        return _random(model, examples, length)
    if tokenizer is None:
        raise ConfigError("texts need the model's tokenizer, and it has none that can be read.")
    texts = read_texts(on) if isinstance(on, Path) else on
    rows = encoded(model, tokenizer, texts, length)
    full = [row for row in rows if len(row) == length][:examples]
    if len(full) < 2:
        place = on if isinstance(on, Path) else "the list"
        raise ConfigError(
            f"{place} holds {len(full)} texts of {length} tokens; spectra need two. Lower the length."
        )
    return torch.from_numpy(np.array(full))


def _random(model: nn.Module, examples: int, length: int) -> Int[Tensor, "b t"]:
    known, rng = drawable_tokens(model), numpy_stream(0, "spectrum", "tokens")
    pool = rng.choice(known, min(TOKENS, len(known)), replace=False)
    return torch.from_numpy(rng.choice(pool, (examples, length)))
