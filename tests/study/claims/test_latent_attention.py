"""Claim 7 on rows with known answers."""

import pytest
from tests.study.made import jitter, rows_of, together

from spectrope.study.claims.latent_attention import TABLE_1, LatentAttention

CLAIM = LatentAttention()


def say(final, gaps=(2.0, 1.0, 1.0)):
    def tell(arm, seed):
        task, name = arm.split("/")
        return {"test": final[task][name] + 0.3 * jitter(seed) * (name == "mla"), "gaps": gaps}

    return tell


ALIKE = {task: dict.fromkeys(scores, 99.0) for task, scores in TABLE_1.items()}
NEAR = {**TABLE_1, "distance": TABLE_1["distance"] | {"mla": 82.7}}


@pytest.mark.parametrize(
    ("tell", "outcome"),
    [
        (say(TABLE_1), "reproduced"),
        (say(ALIKE), "undecided"),
        (say(TABLE_1, gaps=(30.0, 1.0, 1.0)), "contradicted"),
        (say(NEAR), "undecided"),
    ],
)
def test_known_tables(tell, outcome):
    assert together(CLAIM.judge(rows_of(CLAIM, tell))) == outcome


def test_the_gap_stands_beside_that_of_plain_rope():
    def tell(arm, seed):
        return {"gaps": (1.0, {"distance/rope": 12.0}.get(arm, 3.0), 1.0)}

    (note,) = [
        note for one in CLAIM.judge(rows_of(CLAIM, tell)).findings if "ablation" in (note := one.part.note)
    ]
    assert note.endswith(
        "that of models that learned, by their own ablation: RoPE 12.0, n = 6, NoPE 3.0, n = 6"
    )


def test_each_difference_stands_beside_the_paper_s():
    verdict = CLAIM.judge(rows_of(CLAIM, say(TABLE_1)))
    for finding in (one for one in verdict.findings[:-1] if not one.part.premise):
        assert finding.evidence.interval.estimate == pytest.approx(finding.part.paper, abs=0.12)


def test_an_arm_that_has_not_finished_its_training_is_named():
    def tell(arm, seed):
        return say(TABLE_1)(arm, seed) | {"train": 20.0 if arm == "distance/mla" else 99.0}

    verdict = CLAIM.judge(rows_of(CLAIM, tell))
    assert verdict.word == "reproduced"
    assert verdict.headline.part.untrained == "MLA 20.0 %"
    assert verdict.headline.part.beside.startswith(
        "MLA answers 20.0 % of its training examples, and 21.3 % are possible without the order of tokens"
    )
    assert CLAIM.judge(rows_of(CLAIM, say(TABLE_1))).headline.part.beside == ""


def test_a_cost_of_nothing_at_the_ceiling_is_saturated():
    verdict = CLAIM.judge(rows_of(CLAIM, lambda arm, seed: {"test": 100.0}))
    assert verdict.word == "saturated"
