"""Ablate the heads of a language model, and display the result."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
from torch import Tensor, nn

from spectrope.checkpoints.ablation.subject import CheckpointSubject
from spectrope.checkpoints.ablation.sweep import CheckpointFill, CheckpointSweep, checkpoint_sweep
from spectrope.checkpoints.ablation.words import MEANS, flat_in_words
from spectrope.checkpoints.adapters import Tokenizer
from spectrope.checkpoints.language import read_texts, task_sequences, text_sequences, token_sequences
from spectrope.checkpoints.sequences import Sequences
from spectrope.console import Shown
from spectrope.core import ConfigError, UnsupportedError, Watch, unwatched
from spectrope.figures import Drawing, HeadEffects, HeadValue, head_map

HEADS_SHOWN = 12
LOW = 5.0  # Accuracy in percent, below which drops are told to be small for that reason.
COLUMNS = {
    "layer": "layer",
    "head": "head",
    "loss_increase": "loss +",
    "loss_increase_low": "from",
    "loss_increase_high": "to",
    "drop": "drop",
    "drop_low": "drop from",
    "drop_high": "drop to",
}
LOSS_INCREASE = HeadValue(
    "loss_increase", "loss_increase_low", "loss_increase_high", "increase of the loss, nats", ".2f", 0.1
)
Content = str | Path | Sequence[str] | Tensor


@dataclass(frozen=True, repr=False)
class AblatedModel(Shown, HeadEffects):
    """Effect of ablating each head of a language model.

    Args:
        on: What it was scored on, in words.
        length: Most tokens of a sequence.
        sweep: Loss and accuracy of every sequence, for the intact model and with each head changed.
    """

    on: str
    length: int
    sweep: CheckpointSweep

    def to_frame(self) -> pl.DataFrame:
        """A row per head, layer by layer, with the columns of `HeadCost`."""
        return pl.DataFrame(self.sweep.costs())

    def figure(self) -> Drawing:
        """The heat map of the increase of the loss."""
        return Drawing("heatmap", head_map(self.to_frame(), LOSS_INCREASE))

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready values."""
        return {"on": self.on, "length": self.length, **self.sweep.to_dict()}

    def parts(self) -> Iterator[str | tuple[str, pl.DataFrame]]:
        rows = self.to_frame().sort("loss_increase", descending=True).head(HEADS_SHOWN)
        two_stacks = bool((rows["role"] != "").any())
        asked = (
            " The encoder reads the first half, the decoder is asked for the second." if two_stacks else ""
        )
        sweep = self.sweep
        yield (
            f"{self.on}: loss {sweep.loss:.4g} nats per token, accuracy {100 * sweep.accuracy:.1f} % "
            f"on {len(sweep.intact)} sequences of up to {self.length} tokens.{asked} With a head's "
            f"output replaced ({sweep.fill}): loss in nats, drop of accuracy in points, 95 % intervals over "
            f"sequences; layers and heads count from 0. Loss and accuracy are {MEANS}."
        )
        if 100 * sweep.accuracy < LOW:
            yield f"No drop can exceed the accuracy, which is {100 * sweep.accuracy:.1f} %."
        if flat := flat_in_words(self.to_frame(), "heads", "drop_low", "drop_high"):
            yield flat
        shown = layers_named(rows)
        yield "", shown.select(pl.col(old).alias(new) for old, new in COLUMNS.items())
        if len(shown) < len(self.to_frame()):
            yield f"{len(shown)} of {len(self.to_frame())} heads; `--json` and `to_frame` have all of them."


def layers_named(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows of heads whose layers are named with their stack, where the model has more than one."""
    if (rows["role"] == "").all():
        return rows
    return rows.with_columns(layer=pl.concat_str("role", "layer", separator=" ").str.strip_chars())


def ablate_model(
    model: nn.Module,
    on: Content,
    *,
    tokenizer: Tokenizer | None = None,
    examples: int = 32,
    length: int = 64,
    layers: slice = slice(None),
    fill: CheckpointFill = "zero",
    batch: int | None = None,
    watch: Watch = unwatched,
) -> AblatedModel:
    """Ablate each head of a language model in turn, and measure the effect.

    Args:
        model: A Hugging Face model, or an `OwnModel`.
        on: A task of repeated tokens ("induction" or "distance"), a file with a text per line, texts, or
            token ids without padding, with shape (n, t), each of which is to be predicted from those before.
        tokenizer: The model's, for texts, and to hide tokens from a model that sees both ways.
        examples: Sequences of a task, and most of texts.
        length: Tokens of each, at most those of a text; ids have theirs.
        layers: Layers whose heads to change, of each stack.
        fill: What takes the place of a head's output.
        batch: Number of sequences per batch, including changed copies; None chooses a batch that fills the
            device.
        watch: Called with the heads done.

    Raises:
        ConfigError: If the sequences cannot be created from `on`.
        UnsupportedError: If it is no language model, or its loss is not finite.
    """
    subject, data = CheckpointSubject.of(model), contents(model, on, tokenizer, examples, length)
    tokens = None if batch is None else batch * data.width
    sweep = checkpoint_sweep(subject, data, fill=fill, layers=layers, tokens=tokens, watch=watch)
    if not math.isfinite(sweep.loss):
        raise UnsupportedError(f"{type(model).__name__} returns no finite loss; take dtype='float32'.")
    return AblatedModel(content_name(on), data.width, sweep)


def contents(
    model: nn.Module, on: Content, tokenizer: Tokenizer | None, examples: int, length: int
) -> Sequences:
    """What a model is scored on; see `ablate_model`."""
    if isinstance(on, str):
        return task_sequences(model, on, examples, length, tokenizer)
    if isinstance(on, Tensor):
        return token_sequences(model, on, tokenizer)
    if tokenizer is None:
        raise ConfigError("texts need the model's tokenizer, and it has none that can be read.")
    texts = read_texts(on) if isinstance(on, Path) else on
    return text_sequences(model, texts[:examples], length, tokenizer)


def content_name(on: Content) -> str:
    """What a model is scored on, in words."""
    if isinstance(on, str | Path):
        return str(on)
    return "tokens" if isinstance(on, Tensor) else "texts"
