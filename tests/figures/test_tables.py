"""Tables and names from run folders, and what is said of folders that do not fit."""

import re

import polars as pl
import pytest
from tests.figures.synthetic import ENCODINGS, config, make_run, make_store, manifest, metrics

from spectrope.core.errors import ConfigError, StoreError
from spectrope.figures.names import name_runs
from spectrope.figures.tables import read_tables
from spectrope.store import open_run


def rewrite(run, **changes):
    run.finish(run.manifest | changes)


def test_every_row_of_every_run_arrives_in_percent(tmp_path):
    runs = make_store(tmp_path, seeds=(0, 1))
    tables = read_tables(runs)
    assert (len(tables.runs), len(tables.metrics), len(tables.ablation)) == (32, 32 * 14, 32 * 24)
    assert tables.settings == ["distance", "counting"]
    assert tables.encodings == list(ENCODINGS)
    assert tables.seeds == [0, 1]
    run = runs[3]
    row = tables.runs.row(by_predicate=pl.col("run") == run.id, named=True)
    assert row["test"] == pytest.approx(100 * run.manifest["test_accuracy"])
    assert row["ceiling"] == 100.0
    own = tables.metrics.filter(pl.col("run") == run.id)
    assert own["accuracy"].to_list() == pytest.approx((100 * run.frame("metrics")["accuracy"]).to_list())
    assert own["loss"].to_list() == run.frame("metrics")["loss"].to_list()
    heads = tables.ablation.filter(pl.col("run") == run.id)
    assert heads["drop"].to_list() == run.frame("ablation")["drop"].to_list()
    assert (heads["intact"] - heads["ablated"]).to_list() == pytest.approx(heads["drop"].to_list())


def test_a_run_given_twice_counts_once(tmp_path):
    run = make_run(tmp_path, "rope")
    assert len(read_tables([run, run]).runs) == 1


def test_the_order_in_which_runs_are_given_does_not_matter(tmp_path):
    runs = make_store(tmp_path, ("alibi", "nope", "rope"), seeds=(1, 0))
    one, other = read_tables(runs), read_tables(runs[::-1])
    assert one.sources == other.sources
    assert one.runs.equals(other.runs)
    assert one.metrics.equals(other.metrics)
    assert one.ablation.equals(other.ablation)
    names = one.runs.select("setting", "encoding", "seed").rows()
    assert names[:5] == [("distance", e, s) for e in ("nope", "alibi") for s in (0, 1)] + [
        ("distance", "rope", 0)
    ]


def test_the_same_experiment_from_two_folders_is_refused(tmp_path):
    runs = [make_run(tmp_path / folder, "rope") for folder in ("a", "b")]
    with pytest.raises(ConfigError, match=rf"a/{runs[0].id} and .*b/{runs[0].id} are one experiment"):
        read_tables(runs)


def test_runs_without_ablation_are_kept(tmp_path):
    runs = make_store(tmp_path, ("nope", "rope"), ("distance",))
    runs[0].remove("ablation")
    tables = read_tables(runs)
    assert len(tables.runs) == 2
    assert tables.ablation["encoding"].unique().to_list() == ["rope"]


def test_no_run_is_refused():
    with pytest.raises(ConfigError, match="needs at least one run; got none"):
        read_tables([])


def test_an_unfinished_run_is_refused(tmp_path):
    with pytest.raises(StoreError, match="is unfinished"):
        read_tables([open_run(tmp_path, config("rope", "distance", 0), 1)])


def test_a_run_without_metrics_is_refused(tmp_path):
    run = open_run(tmp_path, config("rope", "distance", 0), 1)
    run.finish(manifest(metrics("rope", "distance", 0), "distance"))
    with pytest.raises(StoreError, match="has no table 'metrics'"):
        read_tables([run])


def test_a_run_of_something_else_is_refused(tmp_path):
    run = open_run(tmp_path, {"task": {"kind": "distance"}}, 1)
    with pytest.raises(StoreError, match="is not a training run: its configuration has no 'encoding_name'"):
        read_tables([run])
    run = open_run(tmp_path, config("rope", "distance", 0) | {"task": {}}, 1)
    with pytest.raises(StoreError, match="is not a training run: its task has no name"):
        read_tables([run])


def test_a_manifest_without_scores_is_refused(tmp_path):
    run = make_run(tmp_path, "rope")
    rewrite(run, bayes_accuracy=None)
    with pytest.raises(StoreError, match="has no 'bayes_accuracy' in its manifest"):
        read_tables([run])


def test_a_text_where_a_number_should_be_is_refused(tmp_path):
    run = make_run(tmp_path, "rope")
    rewrite(run, test_accuracy="0.9")
    with pytest.raises(StoreError, match=r"test_accuracy is '0\.9', and has to be a number between 0 and 1"):
        read_tables([run])
    for field, value, told in (
        ("seed", "one", "its seed is no whole number; got 'one'"),
        ("model", "large", "'model' of its configuration holds no fields"),
    ):
        other = open_run(tmp_path, config("rope", "distance", 0) | {field: value}, 1)
        with pytest.raises(StoreError, match=told):
            read_tables([other])


@pytest.mark.parametrize("name", ["metrics", "ablation"])
def test_a_table_that_does_not_fit_is_refused(tmp_path, name):
    run = make_run(tmp_path, "rope")
    whole = run.frame(name)
    column = whole.columns[0]
    run.write_frame(name, whole.drop(column))
    with pytest.raises(StoreError, match=f"table '{name}' has no column '{column}'"):
        read_tables([run])
    run.write_frame(name, whole.with_columns(pl.lit("many").alias(column)))
    with pytest.raises(StoreError, match=f"table '{name}' holds something other than numbers"):
        read_tables([run])


class TestNames:
    """Names are as short as they can be while telling runs apart."""

    def test_task_and_encoding_suffice(self):
        configs = [config(encoding, "distance", seed) for encoding in ("rope", "t5") for seed in (0, 1)]
        assert name_runs(configs) == [("distance", e) for e in ("rope", "rope", "t5", "t5")]

    def test_condition_and_scale_are_named_where_they_differ(self):
        configs = [config("rope", "distance", 0, condition=c) for c in ("controlled", "released")]
        assert [setting for setting, _ in name_runs(configs)] == [
            "distance, controlled",
            "distance, released",
        ]
        configs = [config("rope", "distance", 0, scale=s) for s in ("mini", "paper")]
        assert [setting for setting, _ in name_runs(configs)] == ["distance, mini", "distance, paper"]

    def test_an_earlier_edition_of_a_condition_is_never_drawn_with_a_later_one(self):
        configs = [config("rope", "distance", seed, condition="released") for seed in (0, 1)]
        later = [*configs, configs[0] | {"seed": 2, "edition": 2}]
        assert [setting for setting, _ in name_runs(configs)] == ["distance", "distance"]
        assert [setting for setting, _ in name_runs(later)] == [*["distance, edition 1"] * 2, "distance"]

    def test_fields_that_tell_settings_apart_are_named(self):
        configs = [config("rope", "distance", 0, n_train=n) for n in (700, 1400)]
        assert name_runs(configs) == [("distance, n_train 700", "rope"), ("distance, n_train 1400", "rope")]

    def test_fields_that_tell_encodings_apart_are_named(self):
        def with_base(base):
            whole = config("rope", "distance", 0)
            encoding = {"kind": "rope", "schedule": {"kind": "geometric", "base": base}}
            return whole | {"model": whole["model"] | {"encoding": encoding}}

        found = name_runs([with_base(100.0), with_base(10000.0)])
        assert found == [("distance", "rope, base 100.0"), ("distance", "rope, base 10000.0")]

    def test_elements_of_lists_count(self):
        def with_parts(*kinds):
            whole = config("sum", "distance", 0)
            encoding = {"kind": "sum", "parts": [{"kind": kind} for kind in kinds]}
            return whole | {"model": whole["model"] | {"encoding": encoding}}

        found = name_runs([with_parts("rope", "learned"), with_parts("rope", "sinusoidal")])
        assert [encoding for _, encoding in found] == ["sum, kind learned", "sum, kind sinusoidal"]

    def test_seeds_alone_change_no_name(self):
        assert len(set(name_runs([config("rope", "distance", seed) for seed in range(5)]))) == 1


def test_runs_of_two_settings_are_never_pooled(tmp_path):
    runs = [make_run(tmp_path, "rope", n_train=n) for n in (700, 1400)]
    settings = read_tables(runs).runs["setting"].to_list()
    assert all(re.fullmatch(r"distance, n_train \d+", setting) for setting in settings)
    assert len(set(settings)) == 2
