"""Claim 1, of random positions, on rows with known answers."""

import pytest
from tests.study.made import jitter, rows_of, together

from spectrope.study.claims.distance_ordering import DistanceOrdering
from spectrope.study.claims.distance_overfitting import DistanceOverfitting

CLAIM = DistanceOverfitting()


def say(train=100.0, random=60.0, others=95.0):
    def tell(arm, seed):
        test = random + jitter(seed) if arm == "random" else others
        return {"train": train, "test": test}

    return tell


@pytest.mark.parametrize(
    ("tell", "outcome"),
    [
        (say(), "reproduced"),
        (say(train=80.0), "contradicted"),
        (say(random=99.0, others=99.0), "contradicted"),
        (say(others=60.0), "contradicted"),  # All overfit alike.
        (say(random=90.0, others=95.2), "undecided"),
    ],
)
def test_known_accuracies(tell, outcome):
    assert together(CLAIM.judge(rows_of(CLAIM, tell))) == outcome


@pytest.mark.parametrize("scale", ["mini", "small", "paper"])
def test_few_examples_take_as_many_steps(scale):
    few = CLAIM.arms("controlled", scale, 0)["random"]
    usual = DistanceOrdering().arms("controlled", scale, 0)["random"]
    assert 10 * few.n_train == usual.n_train
    assert few.n_train * few.training.epochs == usual.n_train * usual.training.epochs
