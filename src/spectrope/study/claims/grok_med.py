"""Claim 14: does MED follow the test loss more closely than earlier measures?"""

from collections.abc import Iterator
from functools import partial
from statistics import fmean

from spectrope.grokking import GrokExperiment, tracing
from spectrope.study.grok_arms import ABSTRACT, GrokClaim, base, course, last
from spectrope.study.predictions import AtLeast, AtLeastEach, Values
from spectrope.study.quantities import Quantity, Seen, difference
from spectrope.study.rows import StudyRow
from spectrope.study.verdict import Part

RIVALS = {
    "restricted_loss": "restricted loss",
    "excluded_loss": "excluded loss",
    "fourier_gini": "Fourier sparsity",
    "weight_norm": "weight norm",
    "effective_rank": "effective rank",
}
LEAD = 0.05  # Smallest lead of interest, in rank correlation.
GROKKED = 95.0  # Percent of the test set.


class GrokMed(GrokClaim, name="grok-med"):
    """Compare MED with earlier measures."""

    number = 14
    title = "Grokking: MED follows the test loss more closely than each earlier measure"
    statement = "The main embedding difference follows the test loss more closely than earlier measures do."
    quote = (
        "a novel, concise, and effective progress measure that could trace the changes in test loss more "
        "accurately"
    )
    source = f"{ABSTRACT}; the earlier measures compared here are our choice"
    prediction = "|rho(MED, test loss)| − |rho(m, test loss)| ≥ 0.05 for every earlier measure m"
    test = (
        "Addition learned from random pairs, one layer. rho is Spearman's correlation over the evaluations "
        "of a run, its sign left out, since a measure may rise where the loss falls. Restricted and "
        "excluded loss take the key frequencies of the moment, not those of the trained model. One "
        "difference per seed, Student's t. MED is closest if it is shown to be closer than each of the "
        "others; it is not if any one of them is shown to be as close, at a level corrected for their number "
        "(Bonferroni); the interval is that of the strongest rival, not corrected for the choice. "
        "Any quantity with a trend correlates with the loss to some extent, as the step number shows; "
        "`spectrope grok --compare-measures` gives leads and partial correlations too."
    )
    history = (
        "Twice as many seeds as of other claims: 12 to 17 left every part undecided, and 18 to 23 chose the "
        "number."
    )
    explored = 24
    times = 2

    def arms(self, condition: str, scale: str, seed: int) -> dict[str, GrokExperiment]:
        return {"random": base(scale, seed)}

    def parts(self, seen: Seen) -> Iterator[Part]:
        med, step = (seen.values("random", strength(name)) for name in ("med", "step"))
        yield Part(
            quantity="test accuracy",
            prediction=AtLeast(GROKKED, null=None),
            values=seen.values("random", last("test_accuracy", 100.0)),
            premise=True,
            note=_told(med, step),
        )
        leads = {name: difference(med, seen.values("random", strength(name))) for name in RIVALS}
        near, prediction = AtLeastEach.of_margins(LEAD, "rho", leads)
        told = (f"strongest rival: {RIVALS[near]}", _told(med, step), _signs(seen))
        rivals = "; ".join(one for one in told if one)
        yield Part(
            quantity="strength of MED minus that of each earlier measure",
            prediction=prediction,
            values=leads[near],
            note=rivals,
            beside=rivals,
        )
        for name, told in RIVALS.items():
            yield Part(
                quantity=f"strength of MED minus that of {told}",
                prediction=AtLeast(LEAD, "rho"),
                values=leads[name],
            )


def strength(measure: str) -> Quantity:
    """How closely a measure follows test loss, whichever way."""

    def quantity(row: StudyRow) -> float | None:
        rho = _rho(row, measure)
        return None if rho is None else abs(rho)

    return quantity


def _rho(row: StudyRow, measure: str) -> float | None:
    table = course(row, measure)
    return None if table is None else tracing(table, measure)


def _signs(seen: Seen) -> str:
    """In how many runs MED rises with the test loss, since strength has no sign; empty without runs."""
    rhos = seen.values("random", partial(_rho, measure="med")).values()
    n = sum(rho > 0 for rho in rhos)
    return f"MED rises with the test loss in {n} of {len(rhos)} runs" if rhos else ""


def _told(med: Values, step: Values) -> str:
    means = [fmean(values.values()) for values in (med, step) if values]
    return f"strength of MED {means[0]:.2f}, of the number of the step {means[1]:.2f}" if means[1:] else ""
