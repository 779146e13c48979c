"""`spectrope ablate` on a checkpoint: what every head is worth to a language model."""

import math
from dataclasses import dataclass
from pathlib import Path

import polars as pl
from torch import nn

from spectrope.checkpoints.ablation.subject import CheckpointSubject
from spectrope.checkpoints.ablation.sweep import CheckpointFill, CheckpointSweep, checkpoint_sweep
from spectrope.checkpoints.adapters import Tokenizer, parse_layers
from spectrope.checkpoints.language import read_texts, task_sequences, text_sequences
from spectrope.checkpoints.sequences import Sequences
from spectrope.console import counted, explain, frame
from spectrope.core import ConfigError, UnsupportedError, strict_json

HEADS_SHOWN = 12
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


@dataclass(frozen=True, kw_only=True)
class CheckpointAblation:
    """What a checkpoint is ablated on, and how.

    Args:
        task: Of repeated tokens, where there are no texts.
        texts: File with a text per line, or None.
        examples: Sequences of a task, and most of a file.
        length: Tokens of each, at most those of a text.
        batch: Sequences in one batch, changed copies included; None takes what fills the device.
        layers: Layers whose heads to change, None for all.
        fill: What takes the place of a head's output.
        json: Whether to print the whole result as JSON.
    """

    task: str
    texts: Path | None
    examples: int
    length: int
    batch: int | None
    layers: str | None
    fill: CheckpointFill
    json: bool

    def run(self, model: nn.Module, tokenizer: Tokenizer | None) -> None:
        """Ablate every head and print what it costs."""
        layers = slice(None) if self.layers is None else parse_layers(self.layers)
        subject, data = CheckpointSubject.of(model), self._data(model, tokenizer)
        tokens = None if self.batch is None else self.batch * data.width
        with counted("ablating") as watch:
            sweep = checkpoint_sweep(subject, data, fill=self.fill, layers=layers, tokens=tokens, watch=watch)
        if not math.isfinite(sweep.loss):
            raise UnsupportedError(f"{type(model).__name__} puts out no finite loss; try --dtype float32.")
        if self.json:
            print(strict_json({"on": self.scored_on, "length": data.width, **sweep.to_dict()}))
        else:
            self._show(sweep, data)

    @property
    def scored_on(self) -> str:
        """What the model is scored on, in words."""
        return self.task if self.texts is None else str(self.texts)

    def _data(self, model: nn.Module, tokenizer: Tokenizer | None) -> Sequences:
        if self.texts is None:
            return task_sequences(model, self.task, self.examples, self.length, tokenizer)
        if tokenizer is None:
            raise ConfigError("--texts needs the checkpoint's tokenizer, and it has none that can be read.")
        return text_sequences(model, read_texts(self.texts)[: self.examples], self.length, tokenizer)

    def _show(self, sweep: CheckpointSweep, data: Sequences) -> None:
        rows = pl.DataFrame(sweep.costs()).sort("loss_increase", descending=True).head(HEADS_SHOWN)
        two_stacks = bool((rows["role"] != "").any())
        asked = (
            " The encoder reads the first half, the decoder is asked for the second." if two_stacks else ""
        )
        explain(
            f"{self.scored_on}: loss {sweep.loss:.4g} nats per token, accuracy {100 * sweep.accuracy:.1f} % "
            f"on {len(data)} sequences of up to {data.width} tokens.{asked} With a head's output replaced "
            f"({self.fill}): loss in nats, drop of accuracy in points, 95 % intervals over sequences; layers "
            "and heads count from 0.",
        )
        names = pl.concat_str("role", "layer", separator=" ").str.strip_chars()
        shown = rows.with_columns(layer=names) if two_stacks else rows
        frame("", shown.select(pl.col(old).alias(new) for old, new in COLUMNS.items()))
