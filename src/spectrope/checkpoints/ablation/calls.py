"""Decide which changes of heads cost more than a threshold, without measuring everything on everything."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl
import torch
from jaxtyping import Float, Int
from torch import Tensor

from spectrope.checkpoints.ablation.screening import first_order_effects
from spectrope.checkpoints.ablation.sources import TOKENS, FillSources
from spectrope.checkpoints.ablation.subject import CheckpointSubject
from spectrope.checkpoints.ablation.sweep import checkpoint_scores
from spectrope.checkpoints.sequences import Sequences
from spectrope.core import Progress, Watch, numpy_stream, unwatched
from spectrope.lab import COSTS, UNMEASURED, HeadAblation, Ledger, Variant, call_of, looks
from spectrope.stats import Threshold, mean_intervals

CallMethod = Literal["exact", "adaptive", "screened", "screened-adaptive"]
FIRST_LOOK = 8  # Sequences before the first look of adaptive sampling.
ALPHA = 0.05  # Probability that any of its intervals misses.
BLOCK = 1 / 20  # Share of the changes that screening measures before it looks.
CONTROLS = 59  # Changes that it then draws at random.
MISSED = 0.05  # Probability that more of the changes left out cost than the controls say.
RANKED = 64  # Sequences on which the order is computed where sampling is adaptive.


@dataclass(frozen=True)
class Controls:
    """Changes drawn at random from those that screening finds unlikely to cost, none of which costs.

    Args:
        n: How many.
        left: Unlikely changes that were not measured.
        draws: How often changes were drawn until none of them cost.
    """

    n: int
    left: int
    draws: int

    def most(self) -> int:
        r"""Most of the changes left that cost, with 95 % confidence over the draws.

        The largest D for which :math:`\binom{N-D}{n} / \binom Nn > \alpha 2^{-k}`, with N unlikely changes
        before the k-th draw, :math:`\alpha = 0.05`. Sums over k are at most alpha, so that draws may be
        repeated.
        """
        pool, level = self.n + self.left, MISSED / 2**self.draws
        every = math.comb(pool, self.n)
        return next(d for d in range(self.left + 1) if math.comb(pool - d - 1, self.n) <= level * every)


@dataclass(frozen=True, eq=False)
class Calls:
    """What was measured of some changes, and which of them cost more than the threshold.

    Args:
        table: A row per change: "drop" of accuracy in points with its interval "low" to "high",
            "loss_increase" in nats, sequences "n", and "call"; null where it was not measured.
        intact: Loss in nats and accuracy of the intact model on each sequence used, with shape (n, 2).
        effects: First-order effects on the log odds, of screened changes.
        controls: Of screened changes, if some were left out.
    """

    table: pl.DataFrame
    intact: Float[np.ndarray, "n 2"]
    effects: Float[np.ndarray, " changes"] | None = None
    controls: Controls | None = None


MeasuredChanges = tuple[pl.DataFrame, Float[np.ndarray, "n 2"]]


@dataclass(frozen=True)
class Caller:
    """Changes of a model's heads, to be measured on some sequences.

    Args:
        subject: The model.
        data: The sequences, the population to which adaptive intervals refer.
        changes: One changed head each.
        threshold: Drop of accuracy in points above which a change costs.
        sources: What the fills need beside the heads, over all sequences.
        tokens: Tokens in one batch, copies included; None takes what fills the device.
        watch: Called with the number of changes done, those called or left out among them.
    """

    subject: CheckpointSubject
    data: Sequences
    changes: Sequence[HeadAblation]
    threshold: float
    sources: FillSources
    tokens: int | None = None
    watch: Watch = unwatched

    def calls(self, method: CallMethod) -> Calls:
        """Measure the changes and call each.

        Args:
            method: "exact" measures every change on all sequences, with paired t intervals over sequences;
                "adaptive" samples sequences without replacement until each change is called, with intervals
                that hold for all changes at once and at any stopping time; "screened" measures changes on all
                sequences in the order of their first-order effects, see `_screened`; "screened-adaptive"
                does so by adaptive sampling.
        """
        measure = self._sampled if method.endswith("adaptive") else self._whole
        if method.startswith("screened"):
            found = self._screened(measure, RANKED if method.endswith("adaptive") else len(self.data))
        else:
            table, intact = measure(np.arange(len(self.changes)), 0)
            found = Calls(self._all(table), intact)
        self._tell(float(len(self.changes)))
        return found

    def _screened(
        self, measure: Callable[[Int[np.ndarray, " k"], int], MeasuredChanges], ranked: int
    ) -> Calls:
        """Measure blocks of changes, those with the largest effects first, until none of a block costs; then
        draw controls from the others, and go on if one of these costs."""
        effects = self._effects(ranked)
        left, rows, controls = np.argsort(-effects, kind="stable"), list[pl.DataFrame](), None
        draw, size, draws = numpy_stream(0, "atlas", "controls"), math.ceil(BLOCK * len(left)), 0
        intact = np.empty((0, 2))

        def costs(places: Int[np.ndarray, " k"]) -> bool:
            nonlocal intact
            table, used = measure(places, sum(map(len, rows)))
            rows.append(table)
            intact = max(intact, used, key=len)
            return bool(((table["drop"] > self.threshold) | (table["call"] == COSTS)).any())

        while len(left):
            block, left = left[:size], left[size:]
            if costs(block) or not len(left):
                continue
            drawn = np.isin(np.arange(len(left)), draw.permutation(len(left))[:CONTROLS])
            chosen, left, draws = left[drawn], left[~drawn], draws + 1
            if not costs(chosen) and len(left):
                controls = Controls(len(chosen), len(left), draws)
                break
        return Calls(self._all(pl.concat(rows)), intact, effects, controls)

    def _effects(self, ranked: int) -> Float[np.ndarray, " changes"]:
        """First-order effects on at most so many sequences."""
        order = torch.from_numpy(numpy_stream(0, "atlas", "ranked").permutation(len(self.data)))
        some = torch.arange(len(self.data)) if ranked >= len(self.data) else order[:ranked].sort().values
        return first_order_effects(
            self.subject, self.data[some], self.changes, self.sources.at(some), tokens=self.tokens
        )

    def _whole(self, places: Int[np.ndarray, " k"], done: int) -> MeasuredChanges:
        """Some changes on all sequences, and the scores of the intact model."""
        scores = self._scores(torch.arange(len(self.data)), places, float(done), float(len(places)))
        change = (scores[1:] - scores[0]).swapaxes(0, 1)
        loss = mean_intervals(change[..., 0])
        drop = mean_intervals(-change[..., 1]).scaled(100)
        n = np.full(len(places), len(self.data))
        return self._rows(places, drop.estimate, (drop.low, drop.high), loss.estimate, n), scores[0]

    def _sampled(self, places: Int[np.ndarray, " k"], done: int) -> MeasuredChanges:
        """Some changes on only as many sequences as each decision needs; intervals of accuracy hold for all
        changes, measured or not, simultaneously."""
        n, count = len(self.data), len(places)
        aim, alpha = Threshold(self.threshold / 100), ALPHA / len(self.changes)
        ledger = Ledger.blank(count, n, aim, alpha, np.float64)
        order = torch.from_numpy(numpy_stream(0, "atlas", "order").permutation(n))
        losses, intact = np.zeros(count), list[np.ndarray]()
        for stop in looks(n, FIRST_LOOK, self._step(places)):
            fresh, undecided = order[ledger.seen : stop], ledger.open
            before = done + count - len(undecided) * (1 - ledger.seen / n)
            scores = self._scores(fresh, places[undecided], before, len(undecided) * len(fresh) / n)
            intact.append(scores[0])
            losses[undecided] += (scores[1:, :, 0] - scores[0, :, 0]).sum(1)
            ledger.enter(scores[..., 1])
            if not len(ledger.open):
                break
        drop, ends = ledger.differences.sum(1) / ledger.used, (100 * ledger.low, 100 * ledger.high)
        table = self._rows(places, 100 * drop, ends, losses / ledger.used, ledger.used)
        return table, np.concatenate(intact)

    def _step(self, places: Int[np.ndarray, " k"]) -> int:
        """Least evaluation interval: sequences that fill a batch, with the copies of the layer in which most
        heads are changed. Passes of fewer take about as long."""
        device = next(self.subject.model.parameters()).device
        copies = max(Counter(self.changes[place].layer for place in places).values())
        return math.ceil((self.tokens or TOKENS[device.type]) / (copies * self.data.width))

    def _scores(
        self, index: Int[Tensor, " b"], places: Int[np.ndarray, " k"], before: float, share: float
    ) -> Float[np.ndarray, "k+1 b 2"]:
        """Scores of the intact model and of some changes on some sequences, a share of the work that follows
        what was done before."""
        variants: list[Variant] = [(), *((self.changes[place],) for place in places)]
        return checkpoint_scores(
            self.subject,
            self.data[index],
            variants,
            tokens=self.tokens,
            sources=self.sources.at(index),
            watch=lambda at: self._tell(before + share * at.done / at.total),
        ).numpy()

    def _tell(self, done: float) -> None:
        self.watch(Progress("ablate", int(done), len(self.changes)))

    def _rows(
        self,
        places: Int[np.ndarray, " k"],
        drop: Float[np.ndarray, " k"],
        ends: tuple[Float[np.ndarray, " k"], Float[np.ndarray, " k"]],
        loss: Float[np.ndarray, " k"],
        n: Int[np.ndarray, " k"],
    ) -> pl.DataFrame:
        low, high = ends
        calls = [call_of(*pair, self.threshold) for pair in zip(low.tolist(), high.tolist(), strict=True)]
        columns = {"drop": drop, "low": low, "high": high, "loss_increase": loss, "n": n, "call": calls}
        return pl.DataFrame({"place": places} | columns)

    def _all(self, measured: pl.DataFrame) -> pl.DataFrame:
        """A row per change; what was not measured is null, and called so."""
        every = pl.DataFrame({"place": np.arange(len(self.changes))})
        rows = every.join(measured, on="place", how="left", maintain_order="left").drop("place")
        return rows.with_columns(pl.col("n").fill_null(0), pl.col("call").fill_null(UNMEASURED))
