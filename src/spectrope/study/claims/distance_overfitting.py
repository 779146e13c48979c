"""Claim 1, of random positions: they fit Task 1, and overfit."""

from collections.abc import Iterator
from dataclasses import replace

from spectrope.lab import Experiment
from spectrope.study.arms import NAMES, Arms, by_encoding
from spectrope.study.claim import Claim
from spectrope.study.predictions import AtLeast
from spectrope.study.quantities import Seen, fitted, overfit
from spectrope.study.verdict import Part

FIT, OVERFIT = 95.0, 5.0  # Points of training accuracy; points between that and the held-out one.
RIVALS = ("sinusoidal", "rope")  # The paper names absolute; RoPE is beside it.
FEW = 10  # Times fewer examples, and as many times more epochs: the number of steps stays.


class DistanceOverfitting(Claim, name="distance-overfitting"):
    """Random positions, RoPE and absolute on few examples."""

    number = 1
    title = "Task 1: random positions overfit more than absolute ones"
    statement = (
        "Random initialisation fits Task 1 as well as absolute but overfits; RoPE has a minimal "
        "generalisation gap."
    )
    quote = (
        "Random initialization matches Absolute on training accuracy but overfits—its non-Toeplitz bias "
        "limits generalization, yielding lower test performance."
    )
    source = "Sec. 4.2, figure 2"
    prediction = (
        "train − test is greater under random than under absolute by 5 points or more (headline), and than "
        "under RoPE; training accuracy ≥ 95 % under random, and train − test ≥ 5 points"
    )
    test = (
        "A tenth of the scale's examples for ten times its epochs. At `mini` the usual runs see each example "
        "4 times, the paper's 100 times, so that they cannot overfit: on earlier seeds random fell short of "
        "its training accuracy by 0.6 points. Paired by seed, Student's t."
    )
    paper = "figure 2; no number in the text"

    def arms(self, condition: str, scale: str, seed: int) -> Arms:
        usual = by_encoding("distance", condition, scale, seed, ("random", *RIVALS))
        return {name: on_few(one) for name, one in usual.items()}

    def parts(self, seen: Seen) -> Iterator[Part]:
        for name in RIVALS:
            yield Part(
                quantity=f"random minus {NAMES[name]}, training minus held-out accuracy",
                prediction=AtLeast(OVERFIT),
                values=seen.minus("random", name, overfit),
            )
        yield Part(
            quantity="random, training accuracy",
            prediction=AtLeast(FIT, null=None),
            values=seen.values("random", fitted),
        )
        yield Part(
            quantity="random, training minus held-out accuracy",
            prediction=AtLeast(OVERFIT),
            values=seen.values("random", overfit),
        )


def on_few(experiment: Experiment) -> Experiment:
    """As many steps on a tenth of the examples."""
    training = replace(experiment.training, epochs=FEW * experiment.training.epochs)
    return replace(experiment, training=training, n_train=experiment.n_train // FEW)
