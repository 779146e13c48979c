"""Scores by length against scores computed by hand, scalings against models that have them, the search."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from scipy import stats
from torch.testing import assert_close

import spectrope as sp
from spectrope.core.errors import ConfigError, UnknownNameError
from spectrope.encodings.nope import NoPE
from spectrope.encodings.per_head import Group, PerHead
from spectrope.encodings.positions.interpolated import Interpolated
from spectrope.encodings.rope import RoPE
from spectrope.encodings.schedules.linear import Linear
from spectrope.encodings.schedules.longrope import LongRoPE
from spectrope.encodings.schedules.ntk import NTK
from spectrope.encodings.schedules.yarn import YaRN
from spectrope.lab.extrapolation.lengths import TABLE, check_lengths, extrapolate
from spectrope.lab.extrapolation.scalings import SCALINGS
from spectrope.lab.extrapolation.search import Search, search_slowdowns
from spectrope.lab.job import train
from spectrope.lab.measures.lengths import longer_examples
from spectrope.lab.runs import load_model
from spectrope.lab.training.config import Experiment
from spectrope.lab.training.scales import experiment
from spectrope.models.decoder import Decoder, DecoderConfig

CPU = torch.device("cpu")


def tiny(encoding: str = "rope", **training: float) -> Experiment:
    base = experiment("distance", encoding, epochs=2, n_examples=200)
    model = replace(base.model, d_model=16, n_heads=2, n_layers=2, d_ff=16)
    return replace(base, model=model, training=replace(base.training, batch_size=32, **training))


def scored(run, config, factor, n):
    """Accuracy and loss of the trained weights in a model of a configuration, in one batch."""
    model = Decoder(config, impl="reference").eval()
    trained = load_model(run, CPU).state_dict()
    model.load_state_dict({name: trained[name] for name in model.state_dict()})
    one = Experiment.of(tiny())
    data = longer_examples(one.task, factor, n, one.seed, one.n_train)
    with torch.no_grad():
        logits = model(data)
    return (logits.argmax(-1) == data.labels).double().mean(), F.cross_entropy(logits, data.labels)


def test_tokens_that_a_task_numbers_are_not_renumbered(tmp_path):
    grid = experiment("grid_distance", "rope", epochs=1, n_examples=40)
    with pytest.raises(ConfigError, match="so that the position rule 'shifted' would not be used"):
        grid.with_(positions="shifted")
    table = extrapolate(train(grid, tmp_path, CPU), (2,), ("none", "interpolated"), examples=8)
    assert table["note"].to_list() == ["", "task 'grid_distance' numbers its tokens itself."]
    assert table["accuracy"].null_count() == 1
    with pytest.raises(ConfigError, match="examples must be at least 2"):
        extrapolate(train(grid, tmp_path, CPU), (2,), examples=0)


def test_a_task_without_longer_sequences_is_refused_before_training(tmp_path):
    with pytest.raises(ConfigError, match="no longer form"):
        sp.compare("rope", ["distance", "dyck"], epochs=1, n_examples=40, lengths=(1, 2), root=tmp_path)
    assert not any(tmp_path.iterdir())


def test_scores_are_those_of_a_run_evaluated_by_hand_at_each_length(tmp_path):
    run = train(tiny(), tmp_path, CPU, precision="float32")
    scalings = ("none", "linear", "ntk", "yarn", "drope", "interpolated")
    table = extrapolate(run, (1, 2, 4), scalings, examples=60)
    assert table["factor"].to_list() == [1, 2, 4] * 6
    model = tiny().model
    rope = model.encoding
    by_hand = {
        "none": lambda factor: model,
        "linear": lambda factor: replace(model, encoding=replace(rope, schedule=Linear(factor=factor))),
        "ntk": lambda factor: replace(model, encoding=replace(rope, schedule=NTK(factor=factor))),
        "yarn": lambda factor: replace(
            model, encoding=replace(rope, schedule=YaRN(factor=factor, trained_length=32))
        ),
        "drope": lambda factor: replace(model, encoding=NoPE.Config()),
        "interpolated": lambda factor: replace(model, positions=Interpolated(trained_length=32)),
    }
    for row in table.iter_rows(named=True):
        accuracy, loss = scored(run, by_hand[row["scaling"]](row["factor"]), row["factor"], 60)
        assert row["accuracy"] == float(accuracy)
        assert_close(row["loss"], float(loss), atol=1e-5, rtol=1e-5)
        wilson = stats.binomtest(round(60 * row["accuracy"]), 60).proportion_ci(method="wilson")
        assert (row["low"], row["high"]) == (wilson.low, wilson.high)
        assert row["loss_low"] < row["loss"] < row["loss_high"]
    lengths = table.filter(table["scaling"] == "none")["length"].to_list()
    assert lengths == pytest.approx([lengths[0], 2 * lengths[0], 4 * lengths[0]], rel=0.02)


def test_what_a_run_holds_is_not_computed_again_and_not_lost(tmp_path, monkeypatch):
    run = train(tiny(), tmp_path, CPU, precision="float32")
    first = extrapolate(run, (1,), examples=20)
    both = extrapolate(run, (1, 1.5), examples=20)
    assert both[:1].equals(first)
    monkeypatch.setattr("spectrope.lab.extrapolation.lengths.predict", None)
    assert extrapolate(run, (1.5, 1), examples=20)["factor"].to_list() == [1.5, 1]
    assert len(run.frame(TABLE)) == 2


def test_rows_that_another_process_stores_meanwhile_are_kept(tmp_path):
    run = train(tiny(), tmp_path, CPU, precision="float32")
    other = iter((2.0,))

    def watch(progress):
        for factor in other:
            extrapolate(run, (factor,), examples=20)

    assert extrapolate(run, (1, 1.5), examples=20, watch=watch)["factor"].to_list() == [1, 1.5]
    assert run.frame(TABLE)["factor"].to_list() == [1, 1.5, 2]


def test_an_encoding_that_ends_says_so_and_a_scaling_that_does_not_apply_leaves_no_row(tmp_path):
    run = train(tiny("learned"), tmp_path, CPU, precision="float32")
    table = extrapolate(run, (1, 2), ("none", "linear", "longrope"), examples=20)
    rows = {(row["scaling"], row["factor"]): row for row in table.iter_rows(named=True)}
    assert rows["none", 1]["accuracy"] is not None
    assert rows["none", 2]["accuracy"] is None
    assert "raise max_length" in rows["none", 2]["note"]
    assert set(rows) == {("none", 1), ("none", 2)}
    assert set(run.frame(TABLE)["scaling"]) == {"none"}


def test_searched_factors_leave_the_trained_length_as_it_is(
    tmp_path,
):
    run = train(tiny(), tmp_path, CPU, precision="float32")
    table = extrapolate(run, (1, 2), ("none", "longrope"), examples=40)
    accuracies = table["accuracy"].to_list()
    assert accuracies[2] == accuracies[0]
    assert table["loss"][3] is not None


def test_the_search_finds_what_it_is_asked_for():
    target = (1.0, 1.5, 3.0, 4.0)

    def loss(factors):
        assert all(1 <= a <= b <= 4 for a, b in zip(factors, (*factors[1:], 4.0), strict=True))
        return sum((a - b) ** 2 for a, b in zip(factors, target, strict=True))

    found = search_slowdowns(loss, 8, 10000.0, 4.0, 128, seed=0, how=Search(rounds=30, mutants=10))
    assert loss(found) < 0.05
    starts = [search_slowdowns(loss, 8, 10000.0, 4.0, 128, seed=0, how=Search(rounds=0))]
    assert loss(found) < loss(starts[0])
    assert found == search_slowdowns(loss, 8, 10000.0, 4.0, 128, seed=0, how=Search(rounds=30, mutants=10))


def test_schedules_inside_mixtures_are_replaced_and_others_left():
    groups = (Group(heads=1), Group(heads=1, encoding=RoPE.Config(schedule=LongRoPE())))
    model = DecoderConfig(n_heads=2, encoding=PerHead.Config(groups=groups))
    scaled = SCALINGS["linear"](model, 8.0)
    assert scaled.encoding.groups[0].encoding.schedule == Linear(factor=8.0)
    assert scaled.encoding.groups[1].encoding.schedule == LongRoPE()
    for name in ("linear", "ntk", "yarn", "drope", "interpolated"):
        assert SCALINGS[name](DecoderConfig(), 2.0) is None
    assert SCALINGS["drope"](model, 2.0).encoding == NoPE.Config()


def test_without_longer_ones_all_scalings_but_two_are_the_model_itself(tmp_path):
    run = train(tiny(), tmp_path, CPU, precision="float32")
    table = extrapolate(run, (1,), ("none", "linear", "ntk", "yarn", "interpolated"), examples=30)
    assert len(set(table["loss"].round(5).to_list())) == 1


@pytest.mark.parametrize(
    ("factors", "scalings", "error", "message"),
    [
        ((0.5,), ("none",), ConfigError, "lengths must be multiples of the trained one, from 1 on; got 0.5"),
        ((float("nan"),), ("none",), ConfigError, "got nan"),
        ((), ("none",), ConfigError, "at least one each"),
        ((1,), ("yarm",), UnknownNameError, "unknown scaling 'yarm'; did you mean yarn"),
    ],
)
def test_what_does_not_exist_is_refused(factors, scalings, error, message):
    with pytest.raises(error, match=message):
        check_lengths(factors, scalings)


class TestDroppedPositions:
    def test_a_run_ends_without_them_and_is_measured_without_them(self, tmp_path):
        one = tiny(drop_positions=0.5)
        run = train(one, tmp_path, CPU, precision="float32")
        model = load_model(run, CPU)
        assert model.without_positions
        data = one.task.build().sample(8, 3)
        plain = Decoder(replace(one.model, encoding=NoPE.Config())).eval()
        plain.load_state_dict(model.state_dict())
        with torch.no_grad():
            assert_close(model(data), plain(data))
        assert not load_model(train(tiny(), tmp_path, CPU, precision="float32"), CPU).without_positions

    def test_each_part_of_training_has_a_schedule_of_its_own(self):
        from spectrope.lab.training.loop import learning_rate, steps_with_positions

        config, plain = tiny(drop_positions=0.25).training, tiny().training
        assert steps_with_positions(100, config) == 75
        rates = [learning_rate(step, 100, config) for step in range(100)]
        assert rates[:75] == [learning_rate(step, 75, plain) for step in range(75)]
        assert rates[75:] == [learning_rate(step, 25, plain) for step in range(25)]

    def test_until_then_it_is_the_same_run(self, tmp_path):
        """The first epoch of two, with positions dropped in the second, is a run of one epoch."""
        one = tiny(drop_positions=0.5)
        run = train(one, tmp_path, CPU, precision="float32")
        short = replace(tiny(), training=replace(tiny().training, epochs=1))
        alone = train(short, tmp_path, CPU, precision="float32")
        columns = ["epoch", "split", "loss", "accuracy"]
        assert run.frame("metrics")[:4].select(columns).equals(alone.frame("metrics").select(columns))

    def test_a_share_that_is_none_is_refused(self):
        for share in (0.0, 1.0, -0.1):
            with pytest.raises(ConfigError, match="drop_positions must be a share of the steps, or None"):
                tiny(drop_positions=share)
