"""What a job measures beside ablation: each table by its name, and accuracy on longer sequences."""

from dataclasses import replace

import pytest
import torch

from spectrope.core.errors import ConfigError, UnknownNameError, UnsupportedError
from spectrope.core.progress import unwatched
from spectrope.encodings.base import ENCODINGS
from spectrope.lab.ablation.engine import correctness
from spectrope.lab.ablation.interventions import single_heads
from spectrope.lab.job import Job, complete
from spectrope.lab.measures import MEASURES, lengths
from spectrope.lab.measures.lengths import Lengths, longer_examples
from spectrope.lab.runs import build_model, load_model
from spectrope.lab.training.config import Experiment
from spectrope.lab.training.scales import SCALES, experiment

CPU = torch.device("cpu")


def tiny(encoding: str = "rope", task: str = "distance") -> Experiment:
    base = experiment(task, encoding, epochs=1, n_examples=200)
    model = replace(base.model, d_model=16, n_heads=2, n_layers=2, d_ff=16)
    return replace(base, model=model, training=replace(base.training, batch_size=32))


BY_HEAD = ("start", "head_gradients", "head_growth", "movement")  # Of multi-head attention alone.


def test_every_measure_leaves_the_table_of_its_name(tmp_path):
    stages: list[str] = []
    others = tuple(name for name in MEASURES if name not in BY_HEAD)
    for job in (Job(tiny("mla"), others), Job(tiny(), BY_HEAD)):
        run = complete(job, tmp_path, CPU, lambda event: stages.append(event.stage))
        assert job.is_done(run)
        assert not Job(tiny("alibi")).is_done(replace(run, path=tmp_path))
        assert Job.from_dict(job.to_dict()) == job
    assert set(stages) == {"train", "ablate", "lengths", "spectrum", "learning", "attention-plan", "done"}


@pytest.mark.sampled
@pytest.mark.parametrize("encoding", [*ENCODINGS, "mla"])
def test_every_encoding_trains_and_is_ablated_in_bfloat16(tmp_path, encoding):
    job = Job(tiny(encoding), precision="bfloat16")
    run = complete(job, tmp_path, CPU)
    assert run.manifest["precision"] == "bfloat16"
    assert run.manifest["test_loss"] < 4
    model, (_, held_out) = load_model(run, CPU), job.experiment.task.build().split(160, 40, 0)
    low = correctness(model, held_out, single_heads(model.config), dtype=torch.bfloat16)
    full = correctness(model, held_out, single_heads(model.config))
    assert (low == full).double().mean() > 0.9


def test_an_unknown_measure_is_refused():
    with pytest.raises(UnknownNameError, match="unknown measure 'length'; did you mean lengths"):
        Job(tiny(), ("length",))


@pytest.mark.parametrize("scale", list(SCALES))
@pytest.mark.parametrize("factor", [1.0, 1.5, 2.0, 4.0])
def test_longer_counting_tasks_keep_their_labels(scale, factor):
    config = SCALES[scale]["counting"].task
    batch = longer_examples(config, factor, 300, seed=1)
    assert batch.lengths.tolist() == [factor * config.length] * 300
    longer = replace(config, length=round(factor * config.length)).build()
    assert torch.equal(longer.solve(batch, seed=1), batch.labels)


@pytest.mark.parametrize("fillers", ["clean", "any"])
@pytest.mark.parametrize("factor", [1.0, 1.5, 4.0])
def test_each_distance_example_gets_words_before_and_after(factor, fillers):
    config = replace(SCALES["mini"]["distance"].task, fillers=fillers, triggers="fresh")
    own, longer = config.build().sample(300, 3, 7), longer_examples(config, factor, 300, 3, 7)
    assert torch.equal(longer.labels, own.labels)
    assert torch.equal(longer.lengths, (factor * own.lengths.double()).round().long())
    triggers = set(config.build().trigger_words(3).tolist())
    before = []
    for first, second, n, m in zip(own.inputs, longer.inputs, own.lengths, longer.lengths, strict=True):
        words, found = first[:n].tolist(), second.tolist()
        (start, *_) = [at for at in range(m - n + 1) if found[at : at + n] == words]
        assert triggers.isdisjoint(found[:start] + found[start + n :])
        assert 0 not in found[:m]
        assert set(found[m:]) <= {0}
        before.append(start / max(1, m - n))
    assert factor == 1.0 or sum(before) / 300 == pytest.approx(0.5, abs=0.07)


def test_the_first_length_is_that_of_the_held_out_examples(tmp_path, monkeypatch):
    run = complete(Job(tiny(task="counting"), ("lengths",)), tmp_path, CPU)
    table = run.frame("lengths")
    assert table.select("factor", "length").rows() == [(1.0, 32), (1.5, 48), (2.0, 64), (4.0, 128)]
    monkeypatch.setattr(lengths, "EXAMPLES", 60)
    first = Lengths().table(run, CPU, unwatched)
    assert first["accuracy"][0] == pytest.approx(run.manifest["test_accuracy"])
    assert first["loss"][0] == pytest.approx(run.manifest["test_loss"], rel=1e-5)


def test_a_table_of_positions_ends(tmp_path):
    with pytest.raises(UnsupportedError):
        complete(Job(tiny("learned"), ("lengths",)), tmp_path, CPU)


def test_a_shorter_form_is_refused():
    with pytest.raises(ConfigError, match=r"length must be at least 1; got 0\.5"):
        longer_examples(SCALES["mini"]["distance"].task, 0.5, 1, 0)


def test_another_task_has_no_longer_form():
    with pytest.raises(ConfigError, match="task 'addition' has no longer form"):
        longer_examples(SCALES["mini"]["addition"].task, 2.0, 1, 0)


def test_movement_tells_how_few_parameters_and_frequencies_moved(tmp_path):
    run = complete(Job(tiny("rope"), ("movement",)), tmp_path, CPU)
    weights = load_model(run, CPU).state_dict()
    start = build_model(tiny("rope"), CPU).state_dict()
    change = {name: weights[name] - value for name, value in start.items() if name.endswith("qkv.weight")}
    table = run.frame("movement")
    for layer, one in enumerate(change.values()):
        of_heads = one[: 2 * 32].unflatten(0, (2, 2, 16)).transpose(0, 1).double()  # Heads of width 16.
        for head, part in enumerate(of_heads):
            row = table.filter(layer=layer, head=head).row(0, named=True)
            squares = part.square()
            assert row["energy"] == pytest.approx(squares.sum().item(), rel=1e-6)
            pairs = squares.sum((0, 2)).view(8, 2).sum(1)
            assert row["bands"] == pytest.approx((pairs.sum() ** 2 / pairs.square().sum()).item(), rel=1e-6)
            assert row["pairs"] == 8
            largest = squares.flatten().topk(round(row["responding"] * squares.numel())).values
            assert largest.sum() >= 0.9 * squares.sum() > largest[:-1].sum()
    assert table["bias_before"].null_count() == len(table)


def test_movement_follows_learned_biases_and_finds_fixed_ones_unmoved(tmp_path):
    for encoding, moved in (("relative", True), ("alibi", False)):
        table = complete(Job(tiny(encoding), ("movement",)), tmp_path, CPU).frame("movement")
        changed = (table["bias_before"] - table["bias_after"]).abs().max()
        assert (changed > 1e-6) == moved
        assert table["bands"].null_count() == len(table)
    slope = 2.0**-4  # Of the first of two heads.
    spread = slope * torch.arange(32).double().std(correction=0).item()
    assert table["bias_after"][0] == pytest.approx(spread, rel=1e-5)
