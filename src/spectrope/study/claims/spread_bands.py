"""Claim 20: are the effects of RoPE spread over the spectrum?"""

from collections.abc import Iterator

from spectrope.study.band_arms import BANDED, BandClaim, effective_bands
from spectrope.study.predictions import AtLeast
from spectrope.study.quantities import Seen
from spectrope.study.verdict import Part


class SpreadBands(BandClaim, name="spread-bands"):
    """The effective number of bands of position heads."""

    number = 20
    title = "Task 1: positional information is spread over more than two of four frequency bands"
    statement = "The effects of positions are spread over the spectrum of frequencies."
    source = "The opposite of claim 19; no paper"
    prediction = "1 / Σ (share of a band)², the effective number of 4 bands, over position heads > 2"
    test = BANDED

    def parts(self, seen: Seen) -> Iterator[Part]:
        yield Part(
            quantity="RoPE, Task 1, effective number of bands of position heads",
            prediction=AtLeast(2.0, "bands", null=None),
            values=seen.values("rope", effective_bands, only_learned=True),
        )
