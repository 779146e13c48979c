"""Progress of a plan, and the expected remaining time."""

import time
from collections.abc import Callable, Sequence

from spectrope.core import Progress

TRUSTED = 0.05  # Share of the work after which the observed speed alone counts.


def makespan(seconds: Sequence[float], workers: int) -> float:
    """Lower bound on the time of all jobs, max(Σ s / w, max s), as one job cannot be split between workers.

    Args:
        seconds: Of each job, s.
        workers: Jobs at a time, w.
    """
    return max(sum(seconds) / workers, max(seconds, default=0.0))


class Pace:
    """Turns progress reports of jobs into the share done and the remaining time.

    Work is measured in expected seconds of one worker, so that long jobs weigh more than short ones. Once
    enough work is observed, its speed replaces the expected one, so that estimates off by a constant factor
    do no harm. Work that a resumed job had done before its first report counts as done, but not towards the
    speed.

    Args:
        training: Expected seconds of training, job by job.
        measuring: Expected seconds of what follows, job by job.
        workers: Jobs at a time.
        clock: Seconds that pass.
    """

    def __init__(
        self,
        training: Sequence[float],
        measuring: Sequence[float],
        workers: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.training, self.measuring, self.workers, self.clock = training, measuring, workers, clock
        self.whole = [sum(pair) for pair in zip(training, measuring, strict=True)]
        self.total = sum(self.whole)
        self.done = [0.0] * len(training)
        self.before: dict[int, float] = {}
        self.begun = clock()

    def watch(self, progress: Progress) -> None:
        """Record the progress of a job."""
        number, part = progress.job, progress.done / progress.total
        train, measure = self.training[number], self.measuring[number]
        there = {"train": train * part, "done": train + measure}.get(progress.stage, train)
        self.before.setdefault(number, there)
        if progress.stage == "done":
            self.done[number] = train + measure
        elif progress.stage == "train":
            self.done[number] = max(self.done[number], train * part)
        else:
            self.done[number] = max(self.done[number], train + 0.5 * measure * part)

    @property
    def share(self) -> float:
        """Of the work that is done, between 0 and 1."""
        return sum(self.done) / self.total if self.total else 1.0

    @property
    def remaining(self) -> float:
        """Seconds until the plan is done: at the expected speed at first, then at the observed."""
        each = [max(0.0, whole - done) for whole, done in zip(self.whole, self.done, strict=True)]
        left, elapsed = sum(each), self.clock() - self.begun
        before = sum(self.before.values())
        expected, made = makespan(each, self.workers), sum(self.done) - before
        if made <= 0 or not elapsed:
            return expected
        trust = min(1.0, made / (self.total - before) / TRUSTED)
        return trust * left * elapsed / made + (1 - trust) * expected
