"""Claim 19: do the highest frequencies of RoPE carry position?"""

from collections.abc import Iterator

from spectrope.study.band_arms import BANDED, BandClaim, high_share
from spectrope.study.predictions import AtLeast
from spectrope.study.quantities import Seen
from spectrope.study.verdict import Part


class HighFrequencies(BandClaim, name="high-frequencies"):
    """Band 0 of position heads against all bands."""

    number = 19
    title = "Task 1: the highest quarter of the frequencies carries most of the positional information"
    statement = "Positional attention patterns use the highest frequencies of RoPE."
    source = (
        "Barbero et al. (2024), Round and Round We Go! What makes Rotary Positional Encodings useful?, "
        "abstract"
    )
    prediction = "share of band 0 in the drops of all bands, over position heads > 1/2"
    test = BANDED

    def parts(self, seen: Seen) -> Iterator[Part]:
        yield Part(
            quantity="RoPE, Task 1, share of band 0 in the drops of position heads",
            prediction=AtLeast(0.5, "of the drops", null=None),
            values=seen.values("rope", high_share, only_learned=True),
        )
