"""Claim 5's accuracy on rows with known answers."""

import pytest
from tests.study.made import jitter, rows_of, together

from spectrope.study.claims.contraction import ContractionClaim
from spectrope.study.claims.partial_rope import PartialRoPE

CLAIM = PartialRoPE()


def say(partial):
    return lambda arm, seed: {"test": 95.0 if arm == "8" else partial + 0.3 * jitter(seed)}


@pytest.mark.parametrize(
    ("partial", "outcome"), [(80.0, "reproduced"), (95.0, "contradicted"), (93.9, "undecided")]
)
def test_known_accuracies(partial, outcome):
    assert together(CLAIM.judge(rows_of(CLAIM, say(partial)))) == outcome


def test_ends_are_nope_and_rope():
    arms = CLAIM.arms("controlled", "mini", 6)
    assert list(arms) == [str(k) for k in range(9)]
    assert arms["8"] in ContractionClaim().arms("controlled", "mini", 6).values()
    assert arms["0"].model.encoding.kind == "nope"
    assert arms["4"].model.encoding.groups[0].heads == 4


def test_the_public_code_adds_nothing_to_partial_rope_whatever_the_number_of_heads():
    arms = CLAIM.arms("released", "mini", 6)
    assert list(arms) == [str(k) for k in range(9)]
    assert [arms[str(k)].model.encoding.groups[0].heads for k in range(1, 9)] == list(range(1, 9))
    assert all(one.model.memory == "embeddings" for one in arms.values())


def test_at_the_paper_s_width_the_paper_s_numbers_are_run():
    counts = ["0", "1", "2", "3", "5", "6", "13", "15", "16"]
    assert list(CLAIM.arms("controlled", "paper", 0)) == [*counts, *(f"counting/{k}" for k in counts)]


def test_at_mid_task_2_has_parts_of_its_own():
    rows = rows_of(CLAIM, lambda arm, seed: {"test": 90.0 + jitter(seed)}, scale="mid")
    verdict = CLAIM.judge(rows, "controlled", "mid")
    assert [finding.part.quantity for finding in verdict.findings if "Task 2" in finding.part.quantity] == [
        f"Task 2, RoPE on all heads minus on {words}, held-out accuracy"
        for words in ("a quarter of them", "8", "12")
    ]
