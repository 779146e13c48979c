"""Claim 14: does MED follow the test loss more closely than earlier measures?"""

from collections.abc import Iterator

from spectrope.claims.grokking import BEYOND, GrokClaim, base, course, last
from spectrope.claims.predictions import AtLeast
from spectrope.claims.quantities import Quantity
from spectrope.claims.seen import Seen
from spectrope.claims.verdict import Part
from spectrope.grokking.compare import tracing
from spectrope.grokking.config import GrokExperiment
from spectrope.sweeps.rows import Row

RIVALS = {
    "restricted_loss": "restricted loss",
    "excluded_loss": "excluded loss",
    "fourier_gini": "Fourier sparsity",
    "weight_norm": "weight norm",
    "effective_rank": "effective rank",
    "step": "the number of the step, which follows whatever drifts",
}
GROKKED = 95.0  # Percent of the test set.


class GrokMed(GrokClaim, name="grok-med"):
    """MED against the measures that were there before."""

    number = 14
    title = "Grokking: MED traces the test loss best"
    statement = "The main embedding difference follows the test loss more closely than earlier measures do."
    source = f"{BEYOND}, Sec. 5"
    prediction = "|rho(MED, test loss)| − |rho(m, test loss)| ≥ 0 for every earlier measure m and the step"
    test = (
        "Addition learned from random pairs, one layer. rho is Spearman's correlation over the evaluations "
        "of a run, its sign left out, since a measure may rise where the loss falls. Restricted and "
        "excluded loss take the key frequencies of the moment, not those of the trained model. One "
        "difference per seed, Student's t. `spectrope grok --compare-measures` gives leads and partial "
        "correlations too."
    )
    paper = "no number in the text; a figure"

    def arms(self, condition: str, scale: str, seed: int) -> dict[str, GrokExperiment]:
        return {"random": base(scale, seed)}

    def parts(self, seen: Seen) -> Iterator[Part]:
        yield Part(
            quantity="test accuracy",
            prediction=AtLeast(GROKKED),
            values=seen.values("random", last("test_accuracy", 100.0)),
            premise=True,
        )
        for name, told in RIVALS.items():
            yield Part(
                quantity=f"strength of MED minus that of {told}",
                prediction=AtLeast(0.0, "rho"),
                values=seen.values("random", _ahead(name)),
            )


def _ahead(rival: str) -> Quantity:
    """How much more closely MED follows test loss than a rival does."""

    def quantity(row: Row) -> float | None:
        table = course(row)
        if table is None:
            return None
        own, other = tracing(table, "med"), tracing(table, rival)
        return None if own is None or other is None else abs(own) - abs(other)

    return quantity
