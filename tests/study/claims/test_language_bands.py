"""Claims 27 and 28, about heads of language models, on rows with known drops."""

import json
import statistics
from pathlib import Path

import polars as pl
import pytest
import scipy.stats
from tests.study.made import jitter, row, rows_of

from spectrope.core import UnknownNameError
from spectrope.study.claims.induction_bands import InductionBands
from spectrope.study.claims.previous_token_bands import PreviousTokenBands
from spectrope.study.language_arms import band_share
from spectrope.study.rows import StudyRow, StudyRows

RESULTS = Path(__file__).parents[3] / "results" / "mini.jsonl"
CLAIMS = (PreviousTokenBands(), InductionBands())
DROPS = {
    ("previous-token", "remove-band"): (30.0, 10.0, 0.0, -2.0),
    ("previous-token", "silence-band"): (10.0, 20.0, 10.0, 0.0),
    ("induction", "remove-band"): (1.0, 1.0, 1.0, 1.0),
    ("induction", "silence-band"): (5.0, 5.0, 10.0, 20.0),
}


def groups(changed=DROPS) -> pl.DataFrame:
    drops = {**DROPS, **changed}
    cells = [
        (group, name, band, drop, drop / 10)
        for (group, name), several in drops.items()
        for band, drop in enumerate(several)
    ]
    cells += [(group, name, None, 90.0, 9.0) for group, _ in drops for name in ("zero", "content-only")]
    columns = ["group", "intervention", "band", "drop", "loss_increase"]
    return pl.DataFrame(cells, columns, orient="row", infer_schema_length=None)


def one(changed=DROPS, test=97.0) -> StudyRow:
    (experiment,) = CLAIMS[0].plan("controlled", "mini", (0,))
    return row(experiment, test=test, tables={"head-groups": groups(changed)})


@pytest.mark.parametrize(
    ("group", "intervention", "bands", "share"),
    [
        ("previous-token", "remove-band", (0,), 30 / 40),
        ("previous-token", "silence-band", (0,), 10 / 40),
        ("induction", "silence-band", (2, 3), 30 / 40),
        ("induction", "remove-band", (2, 3), None),  # Its bands cost less than 5 points together.
    ],
)
def test_shares_of_known_drops(group, intervention, bands, share):
    found = band_share(group, intervention, bands)(one())
    assert found == (share if share is None else pytest.approx(share))


def test_a_model_that_has_not_learned_has_no_share():
    share = band_share("induction", "silence-band", (2, 3))
    assert share(one(test=49.0)) is None
    (experiment,) = CLAIMS[0].plan("controlled", "mini", (0,))
    assert share(row(experiment)) is None


def test_both_claims_share_their_six_runs_from_seed_100_on():
    first, second = (claim.plan("controlled", "mini", range(6)) for claim in CLAIMS)
    assert first == second
    assert [run.seed for run in first] == [100, 101, 102, 103, 104, 105]
    assert {run.base for run in first} == {100.0}
    assert all(job.tables == () for job in CLAIMS[0].jobs("controlled", "mini", range(6)))


def test_models_are_deeper_at_larger_scales():
    depths = [CLAIMS[0].plan("controlled", scale, (0,))[0].n_layers for scale in ("mini", "mid", "paper")]
    assert depths == sorted(set(depths))
    with pytest.raises(UnknownNameError, match="huge"):
        CLAIMS[0].plan("controlled", "huge", (0,))


@pytest.mark.parametrize(
    ("share", "word"), [(0.8, "reproduced"), (0.2, "contradicted"), (0.502, "undecided")]
)
@pytest.mark.parametrize("claim", CLAIMS)
def test_known_shares(claim, share, word):
    group, name, high = {
        27: ("previous-token", "remove-band", share),
        28: ("induction", "silence-band", 1 - share),
    }[claim.number]

    def tell(arm, seed):
        part = 40 * (high + 0.01 * jitter(seed))
        return {"tables": {"head-groups": groups({(group, name): (part, 0.0, 0.0, 40 - part)})}, "test": 97.0}

    verdict = claim.judge(rows_of(claim, tell))
    assert verdict.word == word
    assert verdict.headline.n_seeds == 6


@pytest.mark.parametrize("claim", CLAIMS)
def test_four_models_with_shares_decide_nothing(claim):
    def tell(arm, seed):
        return {"tables": {"head-groups": groups()}, "test": 97.0 if seed < 104 else 40.0}

    verdict = claim.judge(rows_of(claim, tell))
    assert verdict.word == "not testable here"
    assert verdict.headline.n_seeds == 4


@pytest.mark.parametrize("claim", CLAIMS)
def test_verdicts_of_the_committed_rows_follow_from_their_text_by_another_program(claim):
    """Shares, interval and word from the lines of the file and scipy alone."""
    group, intervention, bands, least = {
        27: ("previous-token", "remove-band", {0}, 0.5),
        28: ("induction", "silence-band", {2, 3}, 0.5),
    }[claim.number]
    shares = {}
    for record in map(json.loads, RESULTS.read_text("utf-8").splitlines()):
        if record["config"].get("laboratory") != "repeated-tokens":
            continue
        table, drops = record["tables"]["head-groups"], [0.0] * 4
        for place, drop in enumerate(table["drop"]):
            if (table["group"][place], table["intervention"][place]) == (group, intervention):
                drops[table["band"][place]] = max(drop, 0.0)
        if record["facts"]["test_accuracy"] >= 0.5 and sum(drops) >= 5.0:
            shares[record["config"]["seed"]] = sum(drops[band] for band in bands) / sum(drops)
    assert shares.keys() == set(range(100, 106))
    values = list(shares.values())
    above = scipy.stats.ttest_1samp(values, least, alternative="greater").pvalue <= 0.025
    below = scipy.stats.ttest_1samp(values, least, alternative="less").pvalue <= 0.025
    interval = scipy.stats.ttest_1samp(values, 0.0).confidence_interval(0.95)

    verdict = claim.judge(StudyRows.load(RESULTS), seeds=range(6))
    assert verdict.word == ("reproduced" if above else "contradicted" if below else "undecided")
    found = verdict.headline.evidence.interval
    assert found.estimate == pytest.approx(statistics.fmean(values))
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))
