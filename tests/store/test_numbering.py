"""Layers and heads count from 0, also in tables that were written when they counted from 1."""

import polars as pl
import pytest
from polars.testing import assert_frame_equal
from tests.store.old import write_unmarked

from spectrope.store import Run, load_run, open_run
from spectrope.store.numbering import renumbered

OLD = pl.DataFrame({"layer": [1, 1, 3], "head": [1, 8, 2], "lag": [0, 1, 2], "drop": [1.0, None, 3.0]})
NEW = OLD.with_columns(layer=pl.Series([0, 0, 2]), head=pl.Series([0, 7, 1]))
OLD_TEXTS = pl.DataFrame(
    {"layers": ["1-16", "1-16", "3"], "heads": ["1, 3", None, "10"], "kind": ["1", "2", "3"]}
)
NEW_TEXTS = OLD_TEXTS.with_columns(
    layers=pl.Series(["0-15", "0-15", "2"]), heads=pl.Series(["0, 2", None, "9"])
)


@pytest.fixture
def run(tmp_path) -> Run:
    return open_run(tmp_path, {"seed": 0}, 1)


@pytest.mark.parametrize(("old", "new"), [(OLD, NEW), (OLD_TEXTS, NEW_TEXTS)], ids=["numbers", "texts"])
def test_an_old_table_is_converted_once(run, old, new):
    write_unmarked(run, "table", old)
    assert_frame_equal(run.frame("table"), new)
    assert_frame_equal(load_run(run.path).frame("table"), new)  # Reading has not changed the file.
    run.write_frame("table", run.frame("table"))
    assert_frame_equal(run.frame("table"), new)


def test_a_new_table_is_read_as_it_was_written(run):
    for table in (NEW, NEW_TEXTS):
        run.write_frame("table", table)
        assert_frame_equal(run.frame("table"), table)


def test_only_numbers_and_texts_of_layers_and_heads_are_converted():
    table = pl.DataFrame(
        {"epoch": [1], "n_heads": [8], "band": [1], "heads": [8], "layer": ["first"], "head": [None]}
    )
    assert_frame_equal(renumbered(table), table)


def test_an_old_and_a_new_table_of_one_run_agree(run):
    write_unmarked(run, "ablation", OLD)
    run.write_frame("spectrum", NEW.select("layer", "head", toeplitz=pl.lit(0.5)))
    assert len(run.frame("ablation").join(run.frame("spectrum"), on=["layer", "head"])) == len(OLD)


def test_a_copied_run_keeps_the_numbering_of_each_table(run, tmp_path):
    write_unmarked(run, "ablation", OLD)
    run.write_frame("deposit", NEW)
    run.finish({})
    copy = open_run(tmp_path, {"seed": 1}, 1)
    copy.take_over(run)
    for name in ("ablation", "deposit"):
        assert_frame_equal(copy.frame(name), NEW)
