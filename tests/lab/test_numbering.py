"""Layers and heads count from 0 in every table, and a row's numbers name the head that it was measured on."""

import shutil
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
import torch
from polars.testing import assert_frame_equal
from tests.store.old import make_old

from spectrope.lab.ablation.heads import ablated
from spectrope.lab.ablation.interventions import HeadAblation
from spectrope.lab.ablation.methods import Adaptive, Cumulative, Screen, TrainedSubject, ablate
from spectrope.lab.ablation.protocols import PROTOCOLS
from spectrope.lab.evaluation.score import correct, predict
from spectrope.lab.job import Job, complete, train
from spectrope.lab.measures import MEASURES
from spectrope.lab.spectra.heads import Measurement, spectrum
from spectrope.lab.training.config import Experiment
from spectrope.lab.training.learning import LearningProbe
from spectrope.lab.training.scales import experiment
from spectrope.stats.sequential import TargetPrecision
from spectrope.store import Run
from spectrope.tasks.base import Batch

CPU = torch.device("cpu")
LAYERS, HEADS = 2, 3
METHODS = (Adaptive(aim=TargetPrecision(1e-6)), Cumulative(), Screen())  # The first takes every example.
LATENT = ("ablation-latent-columns", "ablation-latent-columns-unrestored-all")
UNCOUNTED = {
    "learning-settings",
    "metrics",
    "lengths",
    "correlation",
    "lags",
    "symbol",
    "extremes",
    "distances",
}


def small(encoding: str) -> Experiment:
    """A model that learns enough for its heads to matter."""
    base = experiment("distance", encoding, epochs=8, n_examples=400, seed=3)
    model = replace(base.model, d_model=16, n_heads=HEADS, n_layers=LAYERS, d_ff=16)
    training = replace(base.training, batch_size=32, learning_rate=2e-2, precision="float32")
    return replace(base, model=model, training=training)


@pytest.fixture(scope="module")
def rope(tmp_path_factory) -> Run:
    """A run with every table that multi-head attention can have."""
    root = tmp_path_factory.mktemp("rope")
    train(small("rope"), root, CPU, probe=LearningProbe(every=20, examples=4))
    run = complete(Job(small("rope"), tuple(name for name in MEASURES if name not in LATENT)), root, CPU)
    for method in METHODS:
        ablate(run, CPU, method)
    return run


@pytest.fixture(scope="module")
def mla(tmp_path_factory) -> Run:
    """A run with latent attention, which alone has columns to ablate."""
    return complete(Job(small("mla"), LATENT), tmp_path_factory.mktemp("mla"), CPU)


def test_every_table_counts_layers_and_heads_from_zero(rope, mla):
    frames = {name: run.frame(name) for run in (rope, mla) for name in run.frames}
    assert set(MEASURES) <= set(frames)
    assert {name for name, frame in frames.items() if "layer" not in frame.columns} == UNCOUNTED
    for name, frame in frames.items():
        if "layer" in frame.columns:
            assert set(frame["layer"]) == set(range(LAYERS)), name
        if "head" in frame.columns:
            heads = set(frame["head"])
            assert heads <= set(range(HEADS)) if name.startswith("deposit") else heads == set(range(HEADS)), (
                name
            )
        if "layers" in frame.columns:
            assert set(frame["layers"]) == {"0-1"}, name
            assert set(frame["heads"]) == {"0-2"}, name


def accuracy(subject: TrainedSubject, data: Batch, *heads: HeadAblation) -> float:
    """In percent, with some heads changed."""
    with ablated(subject.model, *heads):
        hits = correct(subject.model, data, predict(subject.model, data))
    return 100 * hits.double().mean().item()


def check_drops(subject: TrainedSubject, data: Batch, table: pl.DataFrame, drop: str = "drop") -> None:
    """The head that each row names loses what the row says, and another head would not."""
    intact, fills = (
        accuracy(subject, data),
        table["fill"] if "fill" in table.columns else ["zero"] * len(table),
    )
    found = [
        intact - accuracy(subject, data, HeadAblation(layer, head, fill))
        for layer, head, fill in zip(table["layer"], table["head"], fills, strict=True)
    ]
    assert table[drop].to_list() == pytest.approx(found, abs=1e-9)
    assert len(table) == LAYERS * HEADS
    assert len(set(found)) > LAYERS + 1


def test_the_numbers_of_a_row_name_the_head_of_its_drop(rope):
    subject = TrainedSubject.of(rope, CPU)
    for name in ("ablation", "adaptive-within-0.0001", "screen"):
        check_drops(subject, subject.held_out, rope.frame(name))
    half = (len(subject.held_out) + 1) // 2
    check_drops(subject, subject.held_out[:half], rope.frame("cumulative"), "single")
    check_drops(
        subject, PROTOCOLS["R10"].examples(subject.train, subject.held_out), rope.frame("ablation-all")
    )


def test_the_numbers_of_a_row_name_the_columns_of_its_drop(mla):
    subject = TrainedSubject.of(mla, CPU)
    check_drops(subject, subject.held_out, mla.frame("ablation-latent-columns"))


@pytest.mark.parametrize("name", ["R9", "released"])
def test_the_numbers_of_a_row_name_the_last_head_that_a_protocol_leaves_off(rope, name):
    subject, protocol = TrainedSubject.of(rope, CPU), PROTOCOLS[name]
    data = protocol.examples(subject.train, subject.held_out)
    suffix = "-all" if protocol.data == "all" else ""
    rows = rope.frame(f"ablation-unrestored{suffix}").rows(named=True)
    for row, heads in zip(rows, protocol.variants(subject.model.config), strict=True):
        assert heads[-1] == HeadAblation(row["layer"], row["head"], row["fill"])
        assert row["drop"] == pytest.approx(accuracy(subject, data) - accuracy(subject, data, *heads))


@pytest.fixture
def old(rope, tmp_path) -> Run:
    """The same run, as a version wrote it that counted from 1."""
    return make_old(Run(Path(shutil.copytree(rope.path, tmp_path / rope.id))))


def test_a_run_that_counted_from_one_reads_like_one_of_today(rope, old):
    assert pl.read_parquet(old.path / "ablation.parquet")["layer"].min() == 1
    for name in rope.frames:
        assert_frame_equal(old.frame(name), rope.frame(name))


def test_a_table_is_added_to_a_run_that_counted_from_one(rope, old):
    plan = Measurement(examples=12, draws=9)
    added, expected = spectrum(old, CPU, plan), spectrum(rope, CPU, plan)
    assert_frame_equal(old.frame(f"spectrum{plan.mark}"), expected["spectrum"])
    assert_frame_equal(added["correlation"], expected["correlation"])  # Of new quantities with old drops.
    old.remove("start")
    again = complete(Job(small("rope"), ("ablation", "start")), old.path.parent, CPU)
    assert_frame_equal(again.frame("start"), rope.frame("start"))
    assert_frame_equal(again.frame("ablation"), rope.frame("ablation"))
