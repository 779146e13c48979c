"""Claim 4: dropout does not remove the deposit."""

from collections.abc import Iterator
from dataclasses import replace

from spectrope.claims.base import Claim
from spectrope.claims.gaps import GAP
from spectrope.claims.predictions import AtLeast
from spectrope.claims.quantities import gap, shallow
from spectrope.claims.seen import Seen, difference
from spectrope.claims.verdict import Part
from spectrope.training.config import Experiment
from spectrope.training.scales import experiment

RATES = (0.0, 0.1, 0.3)  # None, the paper's, and three times that.


class Dropout(Claim, name="dropout"):
    """The deposit under RoPE at several rates of dropout."""

    number = 4
    title = "Dropout does not remove the deposit"
    statement = "The single-head deposit under RoPE on Task 1 stays when the network is trained with dropout."
    source = "Sec. 5.1"
    prediction = (
        "gap(p) − gap(0) ≥ −10 points and gap(p) ≥ 10 points for p = 0.1 and 0.3, given gap(0) ≥ 10 points"
    )
    test = (
        "RoPE on Task 1 at three rates; the gap as in claim 3, in shallow layers. Without a deposit at rate "
        "0 there is nothing to remove, and the claim stays inconclusive."
    )
    paper = "no number in the text"

    def arms(self, condition: str, scale: str, seed: int) -> dict[str, Experiment]:
        base = experiment("distance", "rope", scale=scale, condition=condition, seed=seed)
        return {f"{p:g}": replace(base, model=replace(base.model, dropout=p)) for p in RATES}

    def parts(self, seen: Seen) -> Iterator[Part]:
        quantity = gap(shallow(seen.n_layers))
        gaps = {p: seen.values(f"{p:g}", quantity, only_learned=True) for p in RATES}
        yield Part(quantity="gap without dropout", prediction=AtLeast(GAP), values=gaps[0.0], premise=True)
        for p in RATES[1:]:
            yield Part(
                quantity=f"gap at rate {p:g} minus gap without dropout",
                prediction=AtLeast(-GAP),
                values=difference(gaps[p], gaps[0.0]),
            )
            yield Part(quantity=f"gap at rate {p:g}", prediction=AtLeast(GAP), values=gaps[p])
