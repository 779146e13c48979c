"""Tables of a grokking run: scores of both splits, embeddings and answers at some steps."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from spectrope.grokking.measures.base import Snapshot
from spectrope.grokking.tasks.modular import Pairs, Split

MOST_MOMENTS = 16
SCORES: Mapping[str, str] = {
    "train_loss": "loss on the training pairs",
    "train_accuracy": "accuracy on the training pairs, a fraction",
    "test_loss": "loss on all other pairs",
    "test_accuracy": "accuracy on all other pairs, a fraction",
    "held_out_loss": "loss on the pairs that the distribution holds out",
    "held_out_accuracy": "accuracy on the pairs that the distribution holds out, a fraction",
}


@dataclass(frozen=True)
class Evaluation:
    """Scores and measures after some steps.

    Args:
        step: Steps taken.
        values: Scores and progress measures by column, None where undefined.
    """

    step: int
    values: dict[str, float | None]


def table(rows: Sequence[Evaluation]) -> pl.DataFrame:
    """Evaluations as a table, one row each."""
    names = list(rows[0].values)
    schema = {"step": pl.Int64, **dict.fromkeys(names, pl.Float64)}
    return pl.DataFrame([{"step": row.step, **row.values} for row in rows], schema=schema)


def stable_steps(rows: Sequence[Evaluation], accuracy: float) -> int | None:
    """Steps for which the test accuracy has not been below `accuracy`, up to the last evaluation; None if it
    is below at that one."""
    since = None
    for row in reversed(rows):
        value = row.values["test_accuracy"]
        if value is None or value < accuracy:
            break
        since = row.step
    return None if since is None else rows[-1].step - since


def scores(snapshot: Snapshot, mse: bool) -> dict[str, float | None]:
    """Losses and accuracies of the training pairs, the others, and those that the distribution holds out."""
    split = snapshot.split
    metrics: dict[str, float | None] = {}
    parts = {"train": split.trains, "test": ~split.trains, "held_out": split.held_out}
    for name, part in parts.items():
        some = bool(part.any())
        metrics[f"{name}_loss"] = loss_of(snapshot, part, mse) if some else None
        metrics[f"{name}_accuracy"] = right(snapshot)[part].double().mean().item() if some else None
    return metrics


def loss_of(snapshot: Snapshot, part: Bool[Tensor, " n"], mse: bool) -> float:
    """Mean loss of some of the pairs."""
    logits, pairs = snapshot.logits[part], snapshot.split.pairs[part]
    if mse:
        return F.mse_loss(logits, one_hot(pairs, logits.shape[1])).item()
    return F.cross_entropy(logits, pairs.labels).item()


def right(snapshot: Snapshot) -> Bool[Tensor, " n"]:
    """Whether the answer to each pair is right."""
    return snapshot.logits.argmax(1) == snapshot.split.pairs.labels


def one_hot(pairs: Pairs, p: int) -> Float[Tensor, "n p"]:
    """Labels as targets of a squared error."""
    return F.one_hot(pairs.labels, p).double()


def with_moment(kept: Mapping[str, Tensor], step: int, snapshot: Snapshot) -> dict[str, Tensor]:
    """What has been kept, and the embeddings and answers of now; at most `MOST_MOMENTS`, evenly over time."""
    now = {"of_a": snapshot.of_a.float(), "of_b": snapshot.of_b.float(), "right": right(snapshot)}
    joined = {**kept, **{f"{step}.{name}": value for name, value in now.items()}}
    steps = moments(joined)
    if len(steps) > MOST_MOMENTS:
        gaps = {
            here: after - before for before, here, after in zip(steps, steps[1:], steps[2:], strict=False)
        }
        crowded = min(gaps, key=lambda here: gaps[here])
        joined = {name: value for name, value in joined.items() if not name.startswith(f"{crowded}.")}
    return joined


def moments(kept: Mapping[str, object]) -> list[int]:
    """Steps of which something is kept, in order."""
    return sorted({int(name.split(".")[0]) for name in kept})


def answers(split: Split, snapshot: Snapshot) -> pl.DataFrame:
    """Every pair, its result, what it was for, and what the model answers."""
    pairs = split.pairs
    columns = {"a": pairs.a, "b": pairs.b, "label": pairs.labels, "trains": split.trains}
    columns |= {"held_out": split.held_out, "answer": snapshot.logits.argmax(1)}
    return pl.DataFrame({name: values.numpy() for name, values in columns.items()})


def plain(values: Tensor) -> Tensor:
    """Values by themselves, in float64 on the CPU."""
    return values.detach().to("cpu", torch.float64)
