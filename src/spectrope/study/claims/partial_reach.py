"""Claim 22: does partial rotation move positional information to the rotated pairs?"""

from collections.abc import Iterator

from spectrope.study.band_arms import PartialClaim, mean_lag
from spectrope.study.predictions import AtLeast
from spectrope.study.quantities import Seen
from spectrope.study.verdict import Part


class PartialReach(PartialClaim, name="partial-reach"):
    """Mean lag of position heads with and without partial rotation."""

    number = 22
    title = "Task 1: with half of the pairs rotated, position heads look farther back"
    statement = "Partial rotation moves positional information to the rotated pairs."
    source = "No paper; models such as GPT-NeoX rotate a part of the pairs"
    prediction = "mean lag of position heads, partial rotation minus RoPE > 0"
    test = (
        "The mean lag is weighted by attention, over 64 held-out examples and the heads that cost more than "
        "5 points without their positions. Differences are paired by seed; runs that have not learned the "
        "task, or have no such head, do not count. Student's t over seeds."
    )

    def parts(self, seen: Seen) -> Iterator[Part]:
        yield Part(
            quantity="Task 1, partial rotation minus RoPE, mean lag of position heads",
            prediction=AtLeast(0.0, "positions", null=None),
            values=seen.minus("partial_dims", "rope", mean_lag, only_learned=True),
        )
