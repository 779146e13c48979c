"""Claim 8 on rows with known answers."""

from math import log

import polars as pl
import pytest
import torch
from tests.lab.engines.test_local import tiny
from tests.study.made import jitter, row, rows_of, together

from spectrope.lab.job import Job, complete
from spectrope.study.claims.contraction import ContractionClaim, contraction
from spectrope.study.claims.distance_ordering import DistanceOrdering
from spectrope.study.rows import StudyRow

CLAIM = ContractionClaim()
ORDER = ("10", "30", "100", "300", "1000", "10000", "100000")


def spectrum(ratio):
    return pl.DataFrame({"layer": [0, 0, 1], "contraction_spectral": [ratio - 0.1, ratio + 0.1, None]})


def test_a_ratio_and_its_inverse_cancel():
    (one, *_) = CLAIM.plan("controlled", "mini", (0,))
    table = pl.DataFrame({"layer": [0, 0], "contraction_spectral": [2.0, 0.5]})
    assert contraction(row(one, tables={"spectrum": table})) == pytest.approx(0.0)


def say(ratio=0.6, slope=-1.0):
    """Ratios grow with the base; speed falls with it if the slope is negative."""

    def tell(arm, seed):
        place = ORDER.index(arm)
        test = 70.0 + 4 * slope * place + 0.5 * jitter(seed)
        tables = {"spectrum": spectrum(ratio + 0.09 * (place - 5) + 0.01 * jitter(seed))}
        return {"test": test, "tables": tables}

    return tell


def test_the_log_ratio_is_the_mean_over_heads_that_have_one():
    (one, *_) = CLAIM.plan("controlled", "mini", (0,))
    mean = (log(0.6) + log(0.8)) / 2
    assert contraction(row(one, tables={"spectrum": spectrum(0.7)})) == pytest.approx(mean)
    assert contraction(row(one, tables={"spectrum": spectrum(0.7)}), layer=1) is None
    assert contraction(row(one)) is None


@pytest.mark.parametrize(
    ("tell", "outcome"),
    [
        (say(), "reproduced"),
        (say(ratio=1.2), "contradicted"),
        (say(slope=1.0), "contradicted"),
        (say(ratio=0.957), "undecided"),
    ],
)
def test_known_ratios(tell, outcome):
    assert together(CLAIM.judge(rows_of(CLAIM, tell))) == outcome


def test_the_mean_is_told_layer_by_layer():
    def tell(arm, seed):
        table = pl.DataFrame({"layer": [0, 1, 1], "contraction_spectral": [0.5, 1.0, 2.0]})
        return {"tables": {"spectrum": table}}

    (found, *_) = CLAIM.judge(rows_of(CLAIM, tell)).findings
    layers = "0.50 [0.50 to 0.50], 1.41 [1.41 to 1.41]"
    excluded, others = found.part.beside.split("; ")
    assert excluded == "a mean contraction by 5 % or more is excluded (p = 0.02)"
    assert others == ("median log ratio 0 [0 to 0], logarithm of the mean ratio 0.15 [0.15 to 0.15]")
    assert found.part.note == f"geometric means by layer {layers}; 33 % of heads contract; {excluded}"


def test_other_summaries_over_heads_are_shown_beside_the_mean():
    def tell(arm, seed):
        ratios = [0.8 + 0.001 * jitter(seed), 0.8, 3.0]
        return {"tables": {"spectrum": pl.DataFrame({"layer": [0] * 3, "contraction_spectral": ratios})}}

    parts = {one.part.quantity: one for one in CLAIM.judge(rows_of(CLAIM, tell)).findings}
    names = ("mean log ratio", "median log ratio", "logarithm of the mean ratio")
    shown = [parts[f"RoPE, {name} of spectral norms with and without rotation"] for name in names]
    assert [one.headline for one in shown] == [True, False, False]
    means = [one.evidence.interval.estimate for one in shown]
    assert means == pytest.approx([log(0.8 * 0.8 * 3.0) / 3, log(0.8), log(4.6 / 3)], abs=1e-3)
    assert [one.part.for_comparison for one in shown] == [False, True, True]


@pytest.mark.parametrize("ratio", [0.9, 0.957])
def test_a_contraction_that_may_be_there_is_not_excluded(ratio):
    assert "excluded" not in CLAIM.judge(rows_of(CLAIM, say(ratio=ratio))).headline.part.beside


def test_a_seed_without_all_bases_has_no_correlation():
    partial = rows_of(CLAIM, lambda arm, seed: None if (arm, seed) == ("30", 14) else say()(arm, seed))
    seeds = {one.part.quantity: one.n_seeds for one in CLAIM.judge(partial).findings}
    assert seeds.pop("that log ratio against speed, over bases") == 5
    assert set(seeds.values()) == {6}


def test_rope_itself_is_the_run_of_claim_1():
    own = CLAIM.arms("released", "mini", 0)["10000"]
    assert own == DistanceOrdering().arms("released", "mini", 0)["rope"]


def test_a_trained_network_has_a_ratio(tmp_path):
    run = complete(Job(tiny(), ("spectrum",)), tmp_path, torch.device("cpu"))
    ratio = contraction(StudyRow.of(run))
    assert ratio == pytest.approx(run.frame("spectrum")["contraction_spectral"].log().mean())
    assert log(0.1) < ratio < log(2.0)
