"""The table of what goes with a deposit counts runs of the right arms and compares odds with `controlled`."""

import pytest
from tests.study.made import row

from spectrope.study.claim import chosen_claims
from spectrope.study.claims.confounds import switched
from spectrope.study.claims.dropout import Dropout
from spectrope.study.page.deposits import BASE, deposit_factors
from spectrope.study.rows import StudyRows
from spectrope.study.study import Study

STUDY = Study(tuple(chosen_claims(())), ("controlled", "released"), "mini", tuple(range(6)))
SHALLOW, DEEPER, NONE = (30.0, 1.0, 1.0), (1.0, 30.0, 1.0), (1.0, 1.0, 1.0)


def rates(seeds, **gaps):
    """Runs of RoPE by rate of dropout; `gaps` has those of a rate, such as `at_0`."""
    return [
        row(one, gaps=gaps[f"at_{rate}"])
        for seed in seeds
        for arm, one in Dropout().arms("controlled", "mini", seed).items()
        if arm.startswith("rope/") and f"at_{(rate := arm.partition('/')[2])}" in gaps
    ]


def switch(name, gaps, seeds):
    return [row(switched("distance", "rope", "mini", seed)[name], gaps=gaps) for seed in seeds]


def table(rows):
    return {name: cells for name, *cells in deposit_factors(STUDY, StudyRows.of(rows))}


def test_runs_are_counted_at_both_depths_and_odds_told_against_controlled():
    base = {"at_0.1": NONE, "at_0.3": NONE}
    rows = rates(range(6, 15), **base, at_0=SHALLOW) + rates(range(15, 24), **base, at_0=DEEPER)
    lines = table(rows + switch("R7", DEEPER, range(6, 12)))
    assert list(lines) == [BASE, "dropout 0.3", "no dropout", "R7"]
    assert lines[BASE] == ["0 of 18", "1", "0 of 18", "1"]
    assert [lines["no dropout"][0], lines["no dropout"][2]] == ["9 of 18", "18 of 18"]
    assert [lines["R7"][0], lines["R7"][2]] == ["0 of 6", "6 of 6"]
    factor, low = lines["no dropout"][3].split(" [")
    assert float(factor.replace(",", "")) > float(low.split(" to ")[0].replace(",", "")) > 1
    assert lines["dropout 0.3"][3].startswith("1 [")


@pytest.mark.parametrize("seeds", [range(6, 11), range(0)])
def test_a_change_counts_from_six_runs_on(seeds):
    rows = rates(range(6, 24), **{"at_0.1": NONE, "at_0": SHALLOW}) + switch("R7", DEEPER, seeds)
    assert "R7" not in table(rows)


def test_without_runs_of_controlled_there_is_no_table():
    assert table(rates(range(6, 24), at_0=SHALLOW)) == {}
