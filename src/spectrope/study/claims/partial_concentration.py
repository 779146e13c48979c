"""Claim 23: does partial rotation remove the deposit?"""

from collections.abc import Iterator

from spectrope.study.band_arms import PartialClaim, concentration
from spectrope.study.predictions import AtMost
from spectrope.study.quantities import Seen
from spectrope.study.verdict import Part


class PartialConcentration(PartialClaim, name="partial-concentration"):
    """Share of the largest drop in its layer with and without partial rotation."""

    number = 23
    title = "Task 1: with half of the pairs rotated, the first layers depend less on a single head"
    statement = "Partial rotation removes the single-head deposit."
    source = "No paper; models such as GPT-NeoX rotate a part of the pairs"
    prediction = (
        "share of the largest drop in its layer, mean over layers 0 and 1, partial rotation minus RoPE < 0"
    )
    test = (
        "Drops of heads whose output is set to 0, on 2,000 held-out examples; negative ones count as 0. "
        "Differences are paired by seed; runs that have not learned the task do not count. Student's t over "
        "seeds. Claim 3 states whether there is a deposit at all."
    )

    def parts(self, seen: Seen) -> Iterator[Part]:
        yield Part(
            quantity="Task 1, partial rotation minus RoPE, share of the largest drop in its layer",
            prediction=AtMost(0.0, "of the drops"),
            values=seen.minus("partial_dims", "rope", concentration, only_learned=True),
        )
