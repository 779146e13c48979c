"""What is told of a verdict beside its word."""

from dataclasses import replace

import pytest
from tests.study.made import row, rows_of

from spectrope.study.claims.grok_med import GrokMed
from spectrope.study.claims.latent_attention import LatentAttention
from spectrope.study.claims.rope_with_absolute import RoPEWithAbsolute
from spectrope.study.claims.single_head import SingleHead
from spectrope.study.page.headline import headline_note, without_one_seed
from spectrope.study.rows import StudyRows
from spectrope.study.study import Study


def judged(claim, tell):
    study = Study((claim,), ("controlled",), "mini", tuple(range(6)))
    rows = rows_of(claim, tell)
    (verdict,) = study.verdicts(rows)
    return study, verdict, rows


def behind(*points):
    """MLA behind RoPE by so many points, seed by seed."""
    return lambda arm, seed: {"test": 90.0 - points[seed - 6] * (arm == "distance/mla")}


@pytest.mark.parametrize(
    ("points", "word", "told"),
    [
        ((11.0, 13.0, 12.0, 14.0, 12.0, 10.0), "contradicted", "undecided in 1"),
        ((11.0, 13.0, 12.0, 14.0, 12.0, 3.0), "undecided", "contradicted in 1"),
    ],
)
def test_a_verdict_that_hangs_on_one_seed_is_told(points, word, told):
    study, verdict, rows = judged(LatentAttention(), behind(*points))
    note = without_one_seed(study, LatentAttention(), verdict, rows)
    assert (verdict.word, note) == (word, f"without one of its seeds: {told} of 6 cases")
    assert headline_note(verdict, note).startswith(note)


@pytest.mark.parametrize("points", [(20.0, 21.0) * 3, (20.0,) * 6])
def test_nothing_is_told_of_a_verdict_that_can_spare_each_seed_or_that_fewer_could_not_give(points):
    study, verdict, rows = judged(LatentAttention(), behind(*points))
    assert verdict.word == "contradicted"
    assert without_one_seed(study, LatentAttention(), verdict, rows) == ""


def test_nothing_is_told_of_an_exact_test():
    class Shallow(SingleHead):
        least_layers = 1  # Rows at `mini` have 3.

    study, verdict, rows = judged(Shallow(), lambda arm, seed: {"gaps": (1.0,) * 3})
    assert verdict.word == "contradicted"
    assert without_one_seed(study, Shallow(), verdict, rows) == ""


def test_an_effect_is_named_where_the_reason_is_about_another_part():
    class Shallow(RoPEWithAbsolute):
        least_layers = 1

    rows = rows_of(Shallow(), lambda arm, seed: None if arm == "alone" else {"gaps": (4.0 + seed % 3,) * 3})
    verdict = Shallow().judge(rows)
    reason = "not testable here: its premise has no run that counts: RoPE alone, gap in layer 0"
    assert headline_note(verdict).startswith(f"{reason} (exploratory: 5.0 [")
    assert headline_note(verdict).endswith("points, n = 6 for RoPE + absolute, gap in layer 0)")


def test_notes_that_a_reason_quotes_are_not_cut():
    claim = GrokMed()
    rows = StudyRows.of(row(one, test=50.0, tables={}) for one in claim.plan("described", "mini", (0,)))
    verdict = replace(
        claim.judge(rows, "described"),
        word="not testable here",
        reason="1 of at least 6 seeds for x (strongest rival: y; strength 0.5); 3 runs left out; 4 of 6 "
        "planned runs to do",
    )
    assert headline_note(verdict) == (
        "not testable here: 1 of at least 6 seeds for x (strongest rival: y; strength 0.5)"
    )


def test_what_a_claim_does_not_predict_is_not_against_it():
    """Without a deposit anywhere, only predictions about RoPE fail."""

    class Shallow(SingleHead):
        least_layers = 1  # Rows at `mini` have 3.

    claim = Shallow()
    verdict = claim.judge(rows_of(claim, lambda arm, seed: {"gaps": (1.0 + 0.1 * (seed % 2),) * 3}))
    failed = [one for one in verdict.findings if one.word == "contradicted" and not one.headline]
    assert all(one.part.quantity.startswith("RoPE, Task 1") for one in failed)
    n = sum(not (one.headline or one.part.for_comparison) for one in verdict.findings)
    assert headline_note(verdict) == f"{len(failed)} of {n} other predictions contradicted"
