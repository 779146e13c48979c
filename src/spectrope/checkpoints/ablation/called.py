"""Call each head of a language model: does its output cost more accuracy than a threshold?"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from torch import nn

from spectrope.checkpoints.ablation.calls import Caller, CallMethod, Calls
from spectrope.checkpoints.ablation.show import HEADS_SHOWN, Content, content_name, contents, layers_named
from spectrope.checkpoints.ablation.sources import FillSources
from spectrope.checkpoints.ablation.subject import CheckpointSubject
from spectrope.checkpoints.ablation.sweep import CheckpointFill, require_several
from spectrope.checkpoints.ablation.words import (
    ceiling_in_words,
    flat_in_words,
    intact_in_words,
    intervals_in_words,
    screening_in_words,
)
from spectrope.checkpoints.adapters import Role, Tokenizer, evaluating, runs_at
from spectrope.console import Shown
from spectrope.core import UnsupportedError, Watch, unwatched
from spectrope.figures import DROP, Drawing, HeadEffects, head_map
from spectrope.lab import COSTS, SPARED, UNDECIDED, HeadAblation

ENDS = {"low": "drop_low", "high": "drop_high"}
COLUMNS = {
    "layer": "layer",
    "head": "head",
    "call": "costs?",
    "drop": "drop",
    "drop_low": "from",
    "drop_high": "to",
    "loss_increase": "loss +",
    "n": "n",
}


@dataclass(frozen=True, repr=False)
class HeadCalls(Shown, HeadEffects):
    """Which heads of a language model cost more accuracy than a threshold.

    Args:
        on: What it was scored on, in words.
        length: Most tokens of a sequence.
        sequences: How many sequences there are.
        method: How heads were called.
        threshold: Drop of accuracy, in points, above which a head costs.
        fill: What took the place of heads' outputs.
        heads: Role, layer and number of each head.
        calls: What was measured.
    """

    on: str
    length: int
    sequences: int
    method: CallMethod
    threshold: float
    fill: CheckpointFill
    heads: tuple[tuple[Role, int, int], ...]
    calls: Calls

    @property
    def loss(self) -> float:
        """Loss of the intact model in nats, a mean over sequences of means over their scored tokens."""
        return float(self.calls.intact[:, 0].mean())

    @property
    def accuracy(self) -> float:
        """Accuracy of the intact model on the sequences used, as a fraction."""
        return float(self.calls.intact[:, 1].mean())

    def to_frame(self) -> pl.DataFrame:
        """A row per head, layer by layer: its call, the drop of accuracy in points with its interval, the
        increase of the loss in nats and the sequences n on which it was measured; with screening also the
        first-order effect on the log odds, an estimate."""
        names = pl.DataFrame(self.heads, schema=["role", "layer", "head"], orient="row")
        rows = pl.concat([names, self.calls.table.rename(ENDS)], how="horizontal")
        if self.calls.effects is not None:
            rows = rows.with_columns(first_order_effect=self.calls.effects)
        return rows.with_columns(fill=pl.lit(self.fill))

    def figure(self) -> Drawing:
        """The heat map of the drops; heads that were not measured are grey."""
        return Drawing("heatmap", head_map(self.to_frame(), replace(DROP, low="drop_low", high="drop_high")))

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready values."""
        controls = self.calls.controls
        return {
            "on": self.on,
            "length": self.length,
            "method": self.method,
            "threshold": self.threshold,
            "fill": self.fill,
            "sequences": self.sequences,
            "sequences_used": len(self.calls.intact),
            "loss": self.loss,
            "accuracy": self.accuracy,
            "controls": None if controls is None else asdict(controls) | {"most": controls.most()},
            "heads": self.to_frame().to_dicts(),
        }

    def parts(self) -> Iterator[str | tuple[str, pl.DataFrame]]:
        rows = self.to_frame()
        yield f"{self._counted(rows)} {self._measured(rows)}"
        if screening := screening_in_words(self.calls, self.method, "heads"):
            yield screening
        shown = rows.sort("drop", descending=True, nulls_last=True).drop_nulls("drop").head(HEADS_SHOWN)
        shown = layers_named(shown)
        yield "largest drops", shown.select(pl.col(old).alias(new) for old, new in COLUMNS.items())
        if len(shown) < len(rows):
            yield f"{len(shown)} of {len(rows)} heads; `--json` and `to_frame` have all of them."

    def _counted(self, rows: pl.DataFrame) -> str:
        """How many heads have which call."""
        counts = {call: int((rows["call"] == call).sum()) for call in (COSTS, SPARED, UNDECIDED)}
        undecided = f", {counts[UNDECIDED]} are undecided" if counts[UNDECIDED] else ""
        return (
            f"{self.on}: of {len(rows)} heads whose output is replaced ({self.fill}) one at a time, "
            f"{counts[COSTS]} cost more than {self.threshold:g} points of accuracy, {counts[SPARED]} do "
            f"not{undecided}."
        )

    def _measured(self, rows: pl.DataFrame) -> str:
        """On what, and what the intervals say."""
        share = rows["n"].sum() / (len(rows) * self.sequences)
        sentences = [
            f"{intact_in_words(self.calls, self.sequences, self.length)}.",
            f"{100 * share:.0f} % of the passes of an exact sweep were computed, with "
            f"{intervals_in_words(self.method, 'head', self.sequences)}.",
            "" if self.method.endswith("adaptive") else flat_in_words(self.calls.table, "heads"),
            ceiling_in_words(self.calls, self.sequences, self.threshold),
            "Layers and heads count from 0.",
        ]
        return " ".join(filter(None, sentences))


def call_heads(
    model: nn.Module,
    on: Content,
    *,
    method: CallMethod,
    threshold: float = 5.0,
    tokenizer: Tokenizer | None = None,
    examples: int = 32,
    length: int = 64,
    layers: slice = slice(None),
    fill: CheckpointFill = "zero",
    batch: int | None = None,
    watch: Watch = unwatched,
) -> HeadCalls:
    """Call each head of a language model: does replacing its output cost more accuracy than a threshold?

    Args:
        model: A Hugging Face model, or an `OwnModel`.
        on: A task, texts or token ids; see `ablate_model`.
        method: See `Caller.calls`.
        threshold: Drop of accuracy, in points.
        tokenizer: The model's, for texts.
        examples: Sequences of a task, and most of texts.
        length: Tokens of each.
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
    require_several(data)
    heads, tokens = subject.heads(layers), None if batch is None else batch * data.width
    with evaluating(model), runs_at(data.width, model):
        sources = FillSources.over(subject, data, [fill], tokens)
    changes = [HeadAblation(*head, fill) for head in heads]
    calls = Caller(subject, data, changes, threshold, sources, tokens, watch).calls(method)
    found = HeadCalls(
        content_name(on), data.width, len(data), method, threshold, fill, subject.named(heads), calls
    )
    if not np.isfinite(calls.intact).all():
        raise UnsupportedError(f"{type(model).__name__} returns no finite loss; take dtype='float32'.")
    return found
