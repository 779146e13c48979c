"""Claim 4 on rows with known answers."""

import pytest
from tests.study.made import jitter, rows_of

from spectrope.study.claims.distance_ordering import DistanceOrdering
from spectrope.study.claims.dropout import Dropout
from spectrope.study.page.effects import effects
from spectrope.study.plan import headline_of

CLAIM = Dropout()


def say(gaps):
    return lambda arm, seed: {"gaps": (gaps.get(arm, 1.0) + jitter(seed), 1.0, 1.0)}


def headline(tell, seeds=18):
    verdict = CLAIM.judge(rows_of(CLAIM, tell, seeds=seeds))
    return verdict.findings[0].word, verdict.headline


@pytest.mark.parametrize(
    ("gaps", "word"),
    [
        ({"rope/0": 40.0, "rope/0.1": 38.0}, "reproduced"),
        ({"rope/0": 40.0, "rope/0.1": 3.0}, "contradicted"),
        (
            {"rope/0": 3.0, "rope/0.1": 40.0},
            "reproduced",
        ),  # Gained.
    ],
)
def test_known_gaps(gaps, word):
    control, one = headline(say(gaps), seeds=36)
    assert one.word == word
    assert (control == "reproduced") == (gaps["rope/0"] > 20)
    assert one.part.quantity == headline_of("dropout")


def test_every_seed_counts_whether_it_has_a_deposit_or_not():
    def tell(arm, seed):
        return {"gaps": (40.0 if arm == "rope/0" and seed % 2 else 1.0, 1.0, 1.0)}

    _, one = headline(tell)
    assert (one.n_seeds, one.evidence.interval.estimate) == (18, 0.5)


def test_deposits_are_counted_at_two_depths():
    tell = say({})
    rows = rows_of(CLAIM, lambda arm, seed: tell(arm, seed) | {"gaps": (1.0, 40.0, 1.0)})
    found = {one.part.quantity: one for one in CLAIM.judge(rows).findings}
    shares = [
        found[
            f"ALiBi, runs with a deposit in the {depth} of the layers at dropout 0.1"
        ].evidence.interval.estimate
        for depth in ("first half", "first two thirds")
    ]
    assert shares == [0.0, 1.0]


def test_claims_predict_nothing_of_what_they_show_for_comparison():
    verdict = CLAIM.judge(rows_of(CLAIM, say({"rope/0": 40.0, "rope/0.1": 38.0}), seeds=18))
    compared = [one for one in verdict.findings if one.part.for_comparison]
    assert {one.part.quantity.partition(",")[0] for one in compared} == {"RoPE", "ALiBi"}
    assert all(one.evidence and not one.p_values for one in compared)
    table = effects([(CLAIM, verdict)]).filter(role="comparison")
    assert len(table) == len(compared)
    assert table["predicted"].unique().to_list() == [""]
    assert table["p_contradicted"].null_count() == len(compared)
    predicted = [one for one in verdict.findings if not (one.part.for_comparison or one.part.premise)]
    assert {one.part.prediction.unit for one in predicted} == {"of runs lost"}


def test_three_layers_locate_no_deposit():
    verdict = CLAIM.judge(rows_of(CLAIM, say({"rope/0": 40.0, "rope/0.1": 38.0})))
    assert (verdict.word, verdict.reason) == (
        "not testable here",
        "3 layers cannot locate what the paper finds in 6 layers",
    )


def test_the_paper_s_rate_is_the_run_of_claim_1():
    arms = CLAIM.arms("controlled", "paper", CLAIM.explored)
    assert [one.model.dropout for one in arms.values()] == [0.0, 0.1, 0.0, 0.1]
    plan = DistanceOrdering().plan("controlled", "paper", (CLAIM.explored,))
    assert {arms["rope/0.1"], arms["alibi/0.1"]} <= set(plan)
