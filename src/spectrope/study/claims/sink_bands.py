"""Claim 21: does attention to the first token explain what bands cost?"""

from collections.abc import Iterator

from spectrope.study.band_arms import BandClaim, explained_by_sink
from spectrope.study.predictions import AtLeast
from spectrope.study.quantities import Seen
from spectrope.study.verdict import Part


class SinkBands(BandClaim, name="sink-bands"):
    """Drops of bands with and without their effect on the first token."""

    number = 21
    title = "Task 1: most of the cost of frequency bands is a disturbed attention sink"
    statement = (
        "Removing a band of frequencies costs accuracy mostly because it disturbs attention to the first "
        "token, the sink."
    )
    source = "No paper: a control for claims 19 and 20"
    prediction = "1 − (drops where logits of the first token stay) / (drops), over position heads > 1/2"
    test = (
        "`spectrope atlas` removes the rotation of each of 4 bands of each head, on 2,000 held-out examples. "
        "Drops of the position heads, those that cost more than 5 points without their positions, are "
        "summed. They are compared with those of the same interventions that leave the logits of the first "
        "token as they are. Runs that have not learned the task, or whose bands cost less than 5 points in "
        "all, do not count. Student's t over seeds."
    )

    def parts(self, seen: Seen) -> Iterator[Part]:
        yield Part(
            quantity="RoPE, Task 1, share of the drops of position heads that the first token explains",
            prediction=AtLeast(0.5, "of the drops", null=None),
            values=seen.values("rope", explained_by_sink, only_learned=True),
        )
