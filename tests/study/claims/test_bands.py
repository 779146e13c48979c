"""Claims 19 to 23, about frequency bands, on rows with known atlases."""

import polars as pl
import pytest
import torch
from tests.lab.engines.test_local import tiny
from tests.study.made import jitter, row, rows_of

from spectrope.lab.job import Job, complete
from spectrope.study.band_arms import (
    concentration,
    effective_bands,
    explained_by_sink,
    high_share,
    mean_lag,
    shares,
)
from spectrope.study.claims.high_frequencies import HighFrequencies
from spectrope.study.claims.partial_concentration import PartialConcentration
from spectrope.study.claims.partial_reach import PartialReach
from spectrope.study.claims.sink_bands import SinkBands
from spectrope.study.claims.spread_bands import SpreadBands
from spectrope.study.rows import StudyRow

BANDS = (30.0, 10.0, 0.0, -2.0)  # Drops of the position head 1.0, by band.


def atlas(bands=BANDS, sink=0.0, zero=(20.0, 20.0), positions=((1, 0),)) -> pl.DataFrame:
    """Cells of two layers of two heads, of which `positions` are the position heads.

    Args:
        bands: Drops of `remove-band` of each position head.
        sink: What `remove-band-off-sink` loses less in band 0.
        zero: Drops of the two heads of a layer whose output is 0.
        positions: Layers and numbers of the position heads.
    """
    cells = []
    for layer in (0, 1):
        for head in (0, 1):
            costs = (layer, head) in positions
            drops = bands if costs else (50.0,) * 4  # Of heads that are not asked.
            off_sink = (drops[0] - sink, *drops[1:])
            banded = {"remove-band": drops, "remove-band-off-sink": off_sink}
            cells += [
                (layer, head, name, band, drop, "costs")
                for name, several in banded.items()
                for band, drop in enumerate(several)
            ]
            cells.append((layer, head, "zero", None, zero[head], "costs"))
            cells.append((layer, head, "content-only", None, 9.0, "costs" if costs else "undecided"))
    return pl.DataFrame(cells, ["layer", "head", "intervention", "band", "drop", "call"], orient="row")


def heads(lag: float) -> pl.DataFrame:
    return pl.DataFrame(
        {"layer": [0, 0, 1, 1], "head": [0, 1, 0, 1], "reach": [100.0, 100.0, lag, 100.0]},
    )


def one(**changes) -> StudyRow:
    (experiment,) = HighFrequencies().plan("controlled", "mini", (0,))
    return row(experiment, tables={"atlas": atlas(**changes), "atlas-heads": heads(3.0)})


def test_quantities_are_those_of_the_position_heads():
    assert shares(one()) == [0.75, 0.25, 0.0, 0.0]
    assert high_share(one()) == 0.75
    assert effective_bands(one()) == pytest.approx(1 / (0.75**2 + 0.25**2))
    assert explained_by_sink(one(sink=20.0)) == 0.5
    assert mean_lag(one()) == 3.0
    assert mean_lag(one(positions=((1, 0), (1, 1)))) == pytest.approx(51.5)
    assert concentration(one(zero=(30.0, 10.0))) == 0.75
    assert concentration(one(zero=(30.0, -10.0))) == 1.0


def test_drops_are_summed_over_position_heads_after_negative_ones_count_as_0():
    assert shares(one(positions=((1, 0), (0, 1)))) == [0.75, 0.25, 0.0, 0.0]
    assert shares(one(bands=(4.0, 2.0, -100.0, 0.0))) == pytest.approx([2 / 3, 1 / 3, 0.0, 0.0])


@pytest.mark.parametrize("changes", [{"positions": ()}, {"bands": (4.0, 0.5, 0.0, -50.0)}])
def test_runs_without_costs_of_position_heads_have_no_shares(changes):
    quantities = (shares, high_share, effective_bands, explained_by_sink)
    assert [quantity(one(**changes)) for quantity in quantities] == [None] * 4


def test_what_a_row_lacks_has_no_value():
    assert mean_lag(one(positions=())) is None
    assert concentration(one(zero=(0.0, -1.0))) is None
    (experiment,) = HighFrequencies().plan("controlled", "mini", (0,))
    bare = row(experiment)
    quantities = (high_share, effective_bands, explained_by_sink, mean_lag, concentration)
    assert [quantity(bare) for quantity in quantities] == [None] * 5


def judged(claim, test=95.0, **changes) -> str:
    def tell(arm, seed):
        bands = [drop + 0.1 * jitter(seed) for drop in changes.get("bands", BANDS)]
        return {"test": test, "tables": {"atlas": atlas(**changes | {"bands": bands})}}

    return claim.judge(rows_of(claim, tell)).word


@pytest.mark.parametrize(
    ("claim", "changes", "word"),
    [
        (HighFrequencies(), {}, "reproduced"),
        (HighFrequencies(), {"bands": (10.0, 30.0, 0.0, 0.0)}, "contradicted"),
        (HighFrequencies(), {"bands": (20.0, 20.0, 0.0, 0.0)}, "undecided"),
        (SpreadBands(), {}, "contradicted"),
        (SpreadBands(), {"bands": (10.0, 10.0, 10.0, 10.0)}, "reproduced"),
        (SinkBands(), {}, "contradicted"),
        (SinkBands(), {"sink": 28.0}, "reproduced"),
        (HighFrequencies(), {"positions": ()}, "not testable here"),
        (HighFrequencies(), {"test": 40.0}, "not testable here"),
    ],
)
def test_words_of_known_atlases(claim, changes, word):
    assert judged(claim, **changes) == word


@pytest.mark.parametrize(
    ("difference", "word"), [(1.0, "reproduced"), (-1.0, "contradicted"), (0.02, "undecided")]
)
def test_words_of_known_mean_lags(difference, word):
    def tell(arm, seed):
        partial = arm == "partial_dims"
        lag = 5.0 + (difference + 0.1 * jitter(seed)) * partial
        return {"tables": {"atlas": atlas(), "atlas-heads": heads(lag)}}

    assert PartialReach().judge(rows_of(PartialReach(), tell)).word == word


@pytest.mark.parametrize(
    ("largest", "word"), [(20.0, "reproduced"), (60.0, "contradicted"), (40.0, "undecided")]
)
def test_words_of_known_concentrations(largest, word):
    def tell(arm, seed):
        drops = (largest + jitter(seed), 20.0) if arm == "partial_dims" else (40.0, 20.0)
        return {"tables": {"atlas": atlas(zero=drops)}}

    assert PartialConcentration().judge(rows_of(PartialConcentration(), tell)).word == word


def test_fewer_than_five_runs_decide_nothing():
    def tell(arm, seed):
        lost = seed > 103
        bands = [drop + 0.1 * jitter(seed) for drop in BANDS]
        return {"test": 40.0 if lost else 95.0, "tables": {"atlas": atlas(bands=bands)}}

    verdict = HighFrequencies().judge(rows_of(HighFrequencies(), tell))
    assert (verdict.word, verdict.n_seeds) == ("not testable here", 4)


def test_the_seeds_are_the_planned_ones():
    assert HighFrequencies().numbers(range(6), "mini") == [100, 101, 102, 103, 104, 105]
    assert {one.seed for one in PartialReach().plan("controlled", "mini", (0, 1))} == {100, 101}


def test_a_run_has_the_tables(tmp_path):
    run = complete(Job(tiny("rope"), ("atlas",)), tmp_path, torch.device("cpu"))
    kept = StudyRow.of(run)
    assert kept.tables["atlas"].columns == ["layer", "head", "intervention", "band", "drop", "call"]
    zeroed = run.frame("atlas").filter(pl.col("intervention") == "zero")
    assert len(kept.tables["atlas-heads"]) == len(zeroed)
    drops = [zeroed.filter(pl.col("layer") == layer)["drop"].clip(0).to_list() for layer in (0, 1)]
    found = [max(some) / sum(some) for some in drops if sum(some) > 0]
    assert concentration(kept) == (pytest.approx(sum(found) / len(found)) if found else None)
    assert (
        StudyRow.read(kept.record())
        .tables["atlas"]
        .equals(kept.tables["atlas"].with_columns(pl.col("drop").round_sig_figs(6)))
    )
