"""Claim 27: which frequency bands do previous-token heads need?"""

from collections.abc import Iterator

from spectrope.study.language_arms import MEASURED, LanguageClaim, band_share
from spectrope.study.predictions import AtLeast
from spectrope.study.quantities import Seen
from spectrope.study.verdict import Part

GROUP = "previous-token"


class PreviousTokenBands(LanguageClaim, name="previous-token-bands"):
    """Band 0 of previous-token heads against all bands."""

    number = 27
    title = "Language models: previous-token heads need the highest quarter of the frequencies most"
    statement = (
        "Heads whose attention pattern is positional, such as the diagonal and the previous token, use the "
        "highest frequencies of RoPE."
    )
    source = "Barbero et al. (2024), the paper of claim 19, abstract; the test is ours"
    prediction = (
        "share of band 0 in the drops of all bands without their rotation, previous-token heads > 1/2"
    )
    test = MEASURED

    def parts(self, seen: Seen) -> Iterator[Part]:
        yield Part(
            quantity="previous-token heads, share of band 0 in the drops without the rotation of a band",
            prediction=AtLeast(0.5, "of the drops", null=None),
            values=seen.values("llama", band_share(GROUP, "remove-band", (0,))),
        )
        yield Part(
            quantity="previous-token heads, share of band 0 in the drops without the logits of a band",
            prediction=AtLeast(0.5, "of the drops", null=None),
            values=seen.values("llama", band_share(GROUP, "silence-band", (0,))),
        )
