"""Claim 6 on rows with known answers."""

from dataclasses import replace

import pytest
from tests.study.made import jitter, rows_of, together

from spectrope.study.claims.dropout import Dropout
from spectrope.study.claims.rope_with_absolute import RoPEWithAbsolute

CLAIM = RoPEWithAbsolute()


def say(alone, both):
    return lambda arm, seed: {
        "gaps": tuple(gap + jitter(seed) for gap in (alone if arm == "alone" else both))
    }


@pytest.mark.parametrize(
    ("tell", "outcome"),
    [
        (say((40.0, 1.0, 1.0), (1.0, 40.0, 1.0)), "reproduced"),
        (say((40.0, 1.0, 1.0), (40.0, 40.0, 1.0)), "contradicted"),
        (say((40.0, 1.0, 1.0), (1.0, 1.0, 1.0)), "contradicted"),
        (say((40.0, 1.0, 1.0), (10.0, 40.0, 1.0)), "undecided"),
        (say((1.0, 1.0, 1.0), (1.0, 40.0, 1.0)), "undecided"),  # Nothing could leave layer 0.
    ],
)
def test_known_gaps(tell, outcome):
    assert together(CLAIM.judge(rows_of(CLAIM, tell))) == outcome


@pytest.mark.parametrize(("known", "why"), [(0, "has no run that counts"), (2, "has 2 of at least 6 seeds")])
def test_a_premise_without_runs_is_not_said_to_be_judged(known, why):
    class Shallow(RoPEWithAbsolute):
        least_layers = 1  # Rows at `mini` have 3.

    tell = say((40.0, 1.0, 1.0), (1.0, 40.0, 1.0))
    first = Shallow().numbers((0,), "mini")[0]
    rows = rows_of(
        Shallow(), lambda arm, seed: None if arm == "alone" and seed >= first + known else tell(arm, seed)
    )
    verdict = Shallow().judge(rows)
    assert verdict.reason == f"its premise {why}: RoPE alone, gap in layer 0"


def test_the_sinusoid_is_added_to_the_input():
    arms = CLAIM.arms("controlled", "mini", 0)
    assert [part.kind for part in arms["both"].model.encoding.parts] == ["rope", "sinusoidal"]
    assert arms["alone"] == Dropout().arms("controlled", "mini", 0)["rope/0"]


def test_the_public_code_s_arms_are_its_partial_rope_on_all_heads_and_its_rope():
    alone, both = (CLAIM.arms("released", "paper", 0)[name].model for name in ("alone", "both"))
    assert (alone.encoding.kind, [group.heads for group in alone.encoding.groups]) == ("per_head", [16])
    assert [part.kind for part in both.encoding.parts] == ["rope", "sinusoidal"]
    assert both.encoding.parts[1].layout == "halves"
    assert replace(alone, encoding=both.encoding) == both
