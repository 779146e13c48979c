"""What training changed in each head: shares of parameters, and of frequencies where there are any."""

import altair as alt
import polars as pl
import pytest
from tests.figures.kinds.test_figures import emptied
from tests.figures.synthetic import make_run

from spectrope.core.errors import StoreError
from spectrope.figures import FIGURES
from spectrope.figures.base import declared_tables
from spectrope.figures.spec import file_spec
from spectrope.figures.tables import read_tables

FIGURE = FIGURES["movement"]


def moved(root, encoding, bands, seed=0):
    run = make_run(root, encoding, seed=seed)
    heads = [
        {"layer": 1, "head": head, "responding": 0.25, "bands": one, "pairs": None if one is None else 8}
        for head, one in enumerate(bands)
    ]
    schema = {"layer": pl.Int64, "head": pl.Int64, "responding": pl.Float64}
    schema |= {"bands": pl.Float64, "pairs": pl.Int64}
    run.write_frame("movement", pl.DataFrame(heads, schema=schema))
    return run


def tables(runs):
    return read_tables(runs, declared_tables([FIGURE]))


def points(runs):
    return {
        panel.title: [(row["head"], row["part"], row["share"]) for row in panel.layers["points"].rows]
        for panel in FIGURE().panels(tables(runs))
    }


def test_frequencies_are_a_share_of_the_pairs_and_missing_without_rotation(tmp_path):
    runs = [moved(tmp_path, "rope", [2.0, 8.0]), moved(tmp_path, "nope", [None])]
    drawn = points(runs)
    assert sorted(drawn["rope"]) == [
        (0, "frequencies", 0.25),
        (0, "parameters", 0.25),
        (1, "frequencies", 1.0),
        (1, "parameters", 0.25),
    ]
    assert drawn["nope"] == [(0, "parameters", 0.25)]


def test_the_specification_is_valid_vega_lite(tmp_path):
    alt.VConcatChart.validate(emptied(file_spec(FIGURE(), tables([moved(tmp_path, "rope", [2.0])]))))


def test_runs_without_the_table_are_refused(tmp_path):
    with pytest.raises(StoreError, match="figure 'movement' draws table 'movement', which none"):
        file_spec(FIGURE(), tables([make_run(tmp_path, "rope")]))
