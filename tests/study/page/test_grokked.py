"""The summary on grokking says what the rows say."""

import numpy as np
import polars as pl
import pytest
from tests.study.made import row

from spectrope.grokking import GrokExperiment
from spectrope.study.claim import chosen_claims
from spectrope.study.claims.grok_distribution import GrokDistribution
from spectrope.study.claims.grok_med import RIVALS, GrokMed
from spectrope.study.page.grokked import SQUARE, grokked
from spectrope.study.rows import StudyRow, StudyRows
from spectrope.study.study import Study

MID = Study(tuple(chosen_claims(())), ("described",), "mid", tuple(range(6)))
FALL = np.linspace(4.0, 0.0, 9)
SWAPPED = FALL[[1, 0, 3, 2, 5, 4, 7, 6, 8]]  # rho with FALL: 1 - 6 * 8 / (9 * 80) = 0.93.


def run(experiment: GrokExperiment, *, test: float, hole: float = 0.0) -> StudyRow:
    """A run in which one earlier measure follows the test loss more closely than MED does."""
    rising = {
        **dict.fromkeys(("med", *RIVALS), np.roll(FALL, 4)),
        "restricted_loss": SWAPPED,
        "test_loss": FALL,
        "train_loss": FALL,
    }
    scores = {"test_accuracy": np.full(9, test), "held_out_accuracy": np.full(9, hole)}
    return row(
        experiment,
        commit="0123abc",
        tables={"progress": pl.DataFrame({"step": np.arange(9.0), **rising, **scores})},
    )


def beside(seeds: int) -> list[StudyRow]:
    made = []
    for seed in range(seeds):
        arms = GrokDistribution().arms("described", "mid", seed)
        made += [run(arms["random"], test=1.0), run(arms[SQUARE], test=0.25 + 0.01 * seed, hole=0.05)]
    return made


def more() -> list[StudyRow]:
    return [run(GrokMed().arms("described", "mid", seed)["random"], test=1.0) for seed in range(6, 12)]


def test_accuracies_of_equally_many_pairs_and_measures_are_told():
    (told,) = grokked(MID, StudyRows.of(beside(6) + more()))
    rho = abs(np.corrcoef(np.argsort(np.argsort(np.roll(FALL, 4))), np.arange(9))[0, 1])
    assert told == (
        "**Models of one layer that train on 2,823 pairs answer 100.0 % of all other sums modulo 97 if those "
        "pairs are drawn at random, and 27.5 % if they all lie outside a square.** The square has the pairs "
        "with both operands at most 67, of which 5.0 % are answered, and 80.5 % of the other test "
        "pairs. All train for 30,000 steps, n = 6. In "
        "12 runs on random pairs, the rank correlation with the test loss, without its sign, is on average "
        f"{rho:.2f} for MED, 0.93 for restricted loss and 1.00 for the number of the step."
    )


@pytest.mark.parametrize("seeds", [0, 5])
def test_few_seeds_say_nothing(seeds):
    assert not list(grokked(MID, StudyRows.of(beside(seeds) + more())))


def test_a_seed_without_its_run_on_random_pairs_is_not_counted():
    assert not list(grokked(MID, StudyRows.of(beside(6)[1:])))
