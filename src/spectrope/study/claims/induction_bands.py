"""Claim 28: which frequency bands do induction heads need?"""

from collections.abc import Iterator

from spectrope.study.language_arms import MEASURED, LanguageClaim, band_share
from spectrope.study.predictions import AtLeast
from spectrope.study.quantities import Seen
from spectrope.study.verdict import Part

GROUP, LOW = "induction", (2, 3)  # Pairs of these bands turn at most about once over a sequence.


class InductionBands(LanguageClaim, name="induction-bands"):
    """The lower half of the frequencies of induction heads against all."""

    number = 28
    title = "Language models: induction heads need the lower half of the frequencies most"
    statement = (
        "The lowest frequencies of RoPE carry semantic information, so that heads which retrieve by content, "
        "such as induction heads, use them."
    )
    source = (
        "Barbero et al. (2024), the paper of claim 19, abstract, as a suspicion; that it applies to "
        "induction heads, and the test, are ours"
    )
    prediction = (
        "share of bands 2 and 3 in the drops of all bands without their logits, induction heads > 1/2"
    )
    test = MEASURED

    def parts(self, seen: Seen) -> Iterator[Part]:
        yield Part(
            quantity="induction heads, share of bands 2 and 3 in the drops without the logits of a band",
            prediction=AtLeast(0.5, "of the drops", null=None),
            values=seen.values("llama", band_share(GROUP, "silence-band", LOW)),
        )
        yield Part(
            quantity="induction heads, share of bands 2 and 3 in the drops without the rotation of a band",
            prediction=AtLeast(0.5, "of the drops", null=None),
            values=seen.values("llama", band_share(GROUP, "remove-band", LOW)),
        )
