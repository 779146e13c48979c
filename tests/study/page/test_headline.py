"""What is told of a verdict beside its word."""

from tests.study.made import rows_of

from spectrope.study.claims.latent_attention import LatentAttention
from spectrope.study.claims.single_head import SingleHead
from spectrope.study.page.headline import headline_note, one_fewer
from spectrope.study.study import Study


def judged(claim, tell):
    study = Study((claim,), ("controlled",), "mini", tuple(range(6)))
    rows = rows_of(claim, tell)
    (verdict,) = study.verdicts(rows)
    return study, verdict, rows


def behind(*points):
    """MLA behind RoPE by so many points, seed by seed."""
    return lambda arm, seed: {"test": 90.0 - points[seed - 6] * (arm == "distance/mla")}


def test_a_verdict_that_hangs_on_one_seed_is_told():
    study, verdict, rows = judged(LatentAttention(), behind(11.0, 13.0, 12.0, 14.0, 12.0, 10.0))
    told = one_fewer(study, LatentAttention(), verdict, rows)
    assert (verdict.word, told) == ("contradicted", "with one seed fewer, undecided in 1 of 6 cases")
    assert headline_note(verdict, told).startswith(told)


def test_nothing_is_told_of_a_verdict_that_each_seed_can_spare_or_that_decides_nothing():
    for points, word in (((20.0, 21.0) * 3, "contradicted"), ((5.0, 15.0) * 3, "undecided")):
        study, verdict, rows = judged(LatentAttention(), behind(*points))
        assert verdict.word == word
        assert one_fewer(study, LatentAttention(), verdict, rows) == ""


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
