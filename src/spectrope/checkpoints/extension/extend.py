"""Measure a checkpoint on longer texts, for several methods of scaling its positions."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch
from jaxtyping import Int
from torch import Tensor, nn

from spectrope.checkpoints.adapters import (
    Tokenizer,
    drawable_tokens,
    encoded,
    evaluating,
    require_own_head,
    trained_length,
)
from spectrope.checkpoints.extension.bands import SCHEMA as BANDS
from spectrope.checkpoints.extension.bands import head_bands
from spectrope.checkpoints.extension.perplexity import key_tokens, losses, needle_accuracy, sliding_losses
from spectrope.checkpoints.extension.rotations import METHODS, ScaledModule, rotations_of, scaled, slowed
from spectrope.checkpoints.extension.search import LONGROPE, searched_factors
from spectrope.checkpoints.language import read_texts
from spectrope.console import Shown
from spectrope.core import (
    ConfigError,
    Progress,
    UnknownNameError,
    UnsupportedError,
    Watch,
    numpy_stream,
    unwatched,
)
from spectrope.stats import mean_intervals

SCHEMA: dict[str, Any] = {
    "method": pl.String,
    "context": pl.Int64,
    **dict.fromkeys(("perplexity", "low", "high", "key_perplexity", "needle"), pl.Float64),
    "tokens": pl.Int64,
    "key_tokens": pl.Int64,
}
METHOD_NAMES = (*METHODS, LONGROPE)
MOST = 2**31  # Tokens of a text.
WINDOW = "window"  # The row of the model as it is, in a sliding window of the trained length.


@dataclass(frozen=True, repr=False)
class Extension(Shown):
    """Effect of a longer context on a checkpoint.

    Args:
        length: Trained length, in positions.
        factor: New length over it.
        judge: The method under which key tokens were found.
        bands: A row per layer and head: pairs that leave the trained range, and their share of logits.
        scores: A row per method: perplexity of the tokens beyond the trained length, with a 95 % interval
            over tokens; of those that need the long context; and how often a needle is found.
        factors: What LongRoPE's search divides each frequency by; empty without a search.
        unplaced: Why there are no bands; empty where there are.
    """

    length: int
    factor: float
    judge: str
    bands: pl.DataFrame
    scores: pl.DataFrame
    factors: tuple[float, ...] = ()
    unplaced: str = ""

    def to_frame(self) -> pl.DataFrame:
        """The scores of the methods; without texts, the bands of the heads."""
        return self.bands if self.scores.is_empty() else self.scores

    def to_dict(self) -> dict[str, Any]:
        """All of it, JSON-ready."""
        tables = {"bands": self.bands.to_dicts(), "scores": self.scores.to_dicts()}
        settings = {"length": self.length, "factor": self.factor, "judge": self.judge}
        return settings | {"factors": list(self.factors), "unplaced": self.unplaced} | tables

    def parts(self) -> Iterator[str | tuple[str, pl.DataFrame]]:
        kinds = self.bands.group_by("leaving", "pairs", maintain_order=True).agg(pl.col("layer").unique())
        for out, pairs, layers in kinds.sort(pl.col("layer").list.min()).iter_rows():
            named = f"layer{'s' * (len(layers) > 1)} {', '.join(map(str, sorted(layers)))}: "
            where = "" if len(kinds) == 1 else named
            if pairs == 0:
                yield f"{where}nothing turns, so that no angle is new at any length."
                continue
            yield (
                f"{where}{out} of {pairs} pairs complete less than one turn in {self.length} positions; at "
                f"{self.factor:g} times that length they reach angles that never occurred in training."
            )
        if self.unplaced:
            yield f"Shares of logits are not told: {self.unplaced}"
        share = pl.col("share")
        layers = self.bands.group_by("layer", maintain_order=True).agg(
            share.mean().round(3).alias("mean"),
            share.max().round(3).alias("largest"),
            pl.col("head").sort_by("share").last().alias("head"),
        )
        if not self.bands.is_empty():
            yield "share of logits in pairs that leave the trained range, over the heads of a layer", layers
        if not self.scores.is_empty():
            title = (
                f"tokens beyond {self.length}: perplexity with 95 % intervals over tokens, perplexity of key "
                f"tokens (found under {self.judge}), needles found"
            )
            yield title, self.scores.with_columns(pl.col(pl.Float64).round(3))
        if self.factors:
            listed = ", ".join(f"{factor:.3g}" for factor in self.factors)
            yield f"{LONGROPE} divides frequencies, from the highest on, by {listed}."


def extend_checkpoint(
    model: nn.Module,
    factor: float = 4.0,
    texts: Sequence[Int[Tensor, " t"]] = (),
    *,
    methods: Sequence[str] = tuple(METHODS),
    length: int | None = None,
    stride: int | None = None,
    judge: str = "yarn",
    needles: int = 8,
    watch: Watch = unwatched,
) -> Extension:
    """Predict the effect of a longer context on a checkpoint's heads, and measure it for several scaling
    methods. Nothing is trained, and the model is not changed. With texts, tokens beyond the trained length
    are scored given all tokens before them, up to `factor` times that length, with every method. As a
    baseline, the unchanged model scores them in a sliding window of the trained length. LongRoPE's factors
    are searched on the first piece of the texts, which is then scored with no method.

    Args:
        model: A Hugging Face decoder with rotary positions.
        factor: New length over the trained one.
        texts: Token ids of long texts; each is cut into pieces of the new length, and shorter ends are left
            out. Without texts nothing is scored.
        methods: Names in `METHOD_NAMES`. By default all but `longrope`, whose search takes 21 more passes.
        length: Trained length; None takes the configuration's.
        stride: Tokens between two windows; None takes an eighth of the window.
        judge: The method under which the tokens that need a long context are found, for all methods alike.
        needles: Sequences of the needle test; 0 leaves it out.
        watch: Progress callback.

    Raises:
        ConfigError: If a value breaks a rule, or texts are too short.
        UnknownNameError: If there is no such method.
        UnsupportedError: If the model has no rotary frequencies that can be scaled, or predicts by a head
            that its checkpoint lacks.
    """
    for name in (*methods, judge):
        if name not in METHOD_NAMES:
            raise UnknownNameError("method", name, METHOD_NAMES)
    length = length or trained_length(model)
    if length is None or length < 4:
        raise ConfigError(
            "the checkpoint's configuration names no trained length of 4 or more; give --length."
        )
    if not 1 < factor < math.inf:
        raise ConfigError(f"factor must be above 1 and finite; got {factor:g}.")
    if int(factor * length) <= length:
        raise ConfigError(
            f"factor must add at least one position to {length}, and so be at least {1 + 1 / length:.6g}; "
            f"got {factor:g}."
        )
    rotations_of(model)
    if len(texts):
        require_own_head(model)
    pieces = _pieces(texts, int(factor * length))
    drawable = torch.from_numpy(drawable_tokens(model))
    shown = pieces[0] if pieces else _drawn(drawable, length)
    ids, unplaced = shown[None, :length].to(next(model.parameters()).device), ""
    try:
        bands = head_bands(model, ids, length, factor)
    except UnsupportedError as reason:  # Scores need no coordinates.
        if not pieces:
            raise
        bands, unplaced = pl.DataFrame(schema=BANDS), str(reason)
    if not pieces:
        return Extension(length, factor, judge, bands, pl.DataFrame(schema=SCHEMA))
    names = list(dict.fromkeys((*methods, judge)))
    steps = len(names) + 1 + (LONGROPE in names)
    factors: tuple[float, ...] = ()
    ways: dict[str, ScaledModule] = dict(METHODS)
    long: dict[str, Tensor] = {}
    found: dict[str, float | None] = {}
    with evaluating(model):
        if LONGROPE in names:
            searched, *pieces = _enough(pieces)
            factors = searched_factors(model, searched, factor, length)
            ways[LONGROPE] = slowed(factors)
            watch(Progress("extending", 1, steps))
        for done, name in enumerate(names, steps - len(names)):
            with scaled(model, ways[name], factor, length):
                long[name] = torch.cat([losses(model, piece)[length - 1 :] for piece in pieces])
                found[name] = needle_accuracy(model, drawable, len(pieces[0]), needles) if needles else None
            watch(Progress("extending", done, steps))
        step = stride or max(1, length // 8)
        short = torch.cat([sliding_losses(model, piece, length, step)[length - 1 :] for piece in pieces])
        watch(Progress("extending", steps, steps))
    keys = key_tokens(long[judge], short)
    rows = [_row(WINDOW, length, short, keys, None)]
    rows += [_row(name, len(pieces[0]), long[name], keys, found[name]) for name in methods]
    return Extension(length, factor, judge, bands, pl.DataFrame(rows, schema=SCHEMA), factors, unplaced)


def long_documents(paths: Sequence[Path]) -> list[str]:
    """Text files, each of which is one document."""
    return ["\n".join(read_texts(path)) for path in paths]


def document_tokens(model: nn.Module, tokenizer: Tokenizer | None, documents: list[str]) -> list[Tensor]:
    """The tokens of each document; none without a tokenizer."""
    if tokenizer is None or not documents:
        return []
    return [torch.tensor(row) for row in encoded(model, tokenizer, documents, MOST)]


def _pieces(texts: Sequence[Int[Tensor, " t"]], context: int) -> list[Tensor]:
    """Parts of the texts of the new length.

    Raises:
        ConfigError: If no text is long enough.
    """
    pieces = [piece for text in texts for piece in text.split(context) if len(piece) == context]
    if len(texts) and not pieces:
        longest = max(map(len, texts))
        raise ConfigError(f"texts must have at least {context} tokens; the longest has {longest}.")
    return pieces


def _enough(pieces: list[Tensor]) -> list[Tensor]:
    """The pieces, if one can be searched on and others scored.

    Raises:
        ConfigError: If there is only one.
    """
    if len(pieces) < 2:
        raise ConfigError(
            f"{LONGROPE} is searched on one piece of {len(pieces[0])} tokens and scored on others; the texts "
            f"make one piece. Give more text, or leave {LONGROPE} out."
        )
    return pieces


def _row(method: str, context: int, nats: Tensor, keys: Tensor, needle: float | None) -> dict[str, Any]:
    interval = mean_intervals(nats.numpy())
    ends = {"perplexity": interval.estimate, "low": interval.low, "high": interval.high}
    return {
        "method": method,
        "context": context,
        **{name: float(np.exp(value)) for name, value in ends.items()},
        "key_perplexity": float(nats[keys].mean().exp()) if bool(keys.any()) else None,
        "needle": needle,
        "tokens": len(nats),
        "key_tokens": int(keys.sum()),
    }


def _drawn(tokens: Int[Tensor, " v"], length: int) -> Int[Tensor, " t"]:
    """Random tokens, where there is no text."""
    return tokens[torch.from_numpy(numpy_stream(0, "extension").integers(len(tokens), size=length))]
