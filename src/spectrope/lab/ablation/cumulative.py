"""The cumulative curve: accuracy as heads are removed one after another, most important first."""

from dataclasses import dataclass

import torch

from spectrope.core import Watch, unwatched
from spectrope.lab.ablation.engine import correctness
from spectrope.lab.ablation.interventions import HeadAblation, growing
from spectrope.lab.ablation.sweep import Sweep
from spectrope.models import Decoder
from spectrope.stats import Discordance, Interval, difference_intervals
from spectrope.tasks import Batch


@dataclass(frozen=True, kw_only=True)
class CumulativeStep:
    """One step of the curve, which changes one more head; layers and heads count from 0.

    Args:
        n_changed: Number of heads changed so far, including this one.
        layer: Layer of this head.
        head: Its number within the layer.
        single: Drop when only this head is changed, in percentage points; determines the order of heads.
        drop: Drop when all heads so far are changed, in percentage points, with its interval over examples.
        accuracy: Accuracy with all of them changed, as a fraction.
    """

    n_changed: int
    layer: int
    head: int
    single: float
    drop: Interval
    accuracy: float


def cumulative_curve(
    model: Decoder,
    data: Batch,
    exact: Sweep,
    *,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
    watch: Watch = unwatched,
) -> tuple[CumulativeStep, ...]:
    """Change heads cumulatively, from the largest single drop to the smallest.

    Args:
        model: A trained decoder.
        data: Held-out examples. They should differ from those of `exact`, so that the order does not favour
            the first steps.
        exact: The sweep that determines the order of the heads and the fill.
        dtype: Precision of matrix products.
        seed: Seed for pairing examples when outputs are resampled.
        watch: Progress callback, called with the number of head-forwards done.
    """
    rows = sorted(exact.drops(), key=lambda row: -row.drop)
    order = [HeadAblation(row.layer, row.head, exact.fill) for row in rows]
    hits = correctness(model, data, [(), *growing(order)], dtype=dtype, seed=seed, watch=watch).numpy()
    drops = difference_intervals(Discordance.of(hits[0], hits[1:])).scaled(100)
    steps = []
    for i, row in enumerate(rows):
        drop = drops.at(i)
        assert drop is not None
        accuracy = float(hits[i + 1].mean())
        steps.append(
            CumulativeStep(
                n_changed=i + 1,
                layer=row.layer,
                head=row.head,
                single=row.drop,
                drop=drop,
                accuracy=accuracy,
            )
        )
    return tuple(steps)
