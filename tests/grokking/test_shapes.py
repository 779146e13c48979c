"""Images of polygons, ResNet-18, and its training."""

import itertools
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import transformers
from polars.testing import assert_frame_equal
from torch.testing import assert_close

from spectrope.cli import main
from spectrope.console.terminal import console
from spectrope.core.config import from_dict, to_dict
from spectrope.core.errors import ConfigError, Interrupted, UnsupportedError
from spectrope.core.random import numpy_stream
from spectrope.grokking.commands.grok_shapes import GrokShapes
from spectrope.grokking.config import ShapesExperiment, ShapesTraining
from spectrope.grokking.measures.uniformity import uniformity
from spectrope.grokking.models.vision import BASIC, ResNet18
from spectrope.grokking.shapes import ShapesTrainer
from spectrope.grokking.steps import PROGRESS
from spectrope.grokking.tasks.distributions import Square, Strip
from spectrope.grokking.tasks.shapes import ShapesConfig, glyph
from spectrope.lab.experiments import read_experiment, written
from spectrope.lab.job import train as grok
from spectrope.lab.runs import run_for
from spectrope.lab.training.state import WEIGHTS
from spectrope.store import find_runs

CPU = torch.device("cpu")
FEW = ShapesConfig(sides=(0, 3), resolution=16, n_train=8)
SMALL = {"embedding_size": 4, "hidden_sizes": [4, 4, 4, 4]}


def tiny(**changes: object) -> ShapesExperiment:
    training = ShapesTraining(steps=5, batch_size=3, evaluate_every=2, stop=None)
    return ShapesExperiment(task=FEW, training=replace(training, **changes), width=2)


class TestImages:
    def test_there_are_all_combinations_with_their_sums(self):
        task = ShapesConfig().build()
        assert len(task) == 11**4 == 14_641
        assert ShapesConfig().n_classes == 49
        assert task.labels.unique().tolist() == [0, *range(3, 49)]
        some = {
            tuple(cells): int(label) for cells, label in zip(task.cells.tolist(), task.labels, strict=True)
        }
        assert len(some) == 11**4
        assert some[0, 1, 10, 10] == 0 + 3 + 12 + 12

    def test_each_polygon_stands_in_its_own_quarter(self):
        task = ShapesConfig(sides=(0, 3, 5, 8), resolution=40, n_train=3).build()
        (place,) = (task.cells == torch.tensor([1, 0, 3, 2])).all(1).nonzero()
        (image,) = task.draw(place)
        quarters = [image[0, :20, :20], image[0, :20, 20:], image[0, 20:, :20], image[0, 20:, 20:]]
        assert_close(torch.stack(quarters), torch.stack([glyph(m, 20) for m in (3, 0, 8, 5)]))
        assert_close(image[0], image[2])

    @pytest.mark.parametrize("sides", [3, 4, 7, 12])
    def test_a_polygon_has_its_corners_edges_and_spokes(self, sides):
        size = 201
        drawn = glyph(sides, size)

        def at(share: float, turn: float) -> float:
            angle = torch.tensor(2 * torch.pi * turn / sides)
            x, y = (share * 0.8 * angle.sin() + 1) / 2, (1 - share * 0.8 * angle.cos()) / 2
            return drawn[int(y * size), int(x * size)].item()

        edge = torch.cos(torch.tensor(torch.pi / sides)).item()  # How far the middle of an edge is out.
        for corner in range(sides):
            assert at(0.99, corner) == at(0.5, corner) == at(edge, corner + 0.5) == 1
            assert at(0.6 * edge, corner + 0.5) == 0
        assert drawn[0].max() == drawn[:, 0].max() == 0
        assert (drawn.max(), drawn.min()) == (1, 0)

    def test_sizes_are_drawn_alike(self):
        fine, coarse = glyph(5, 96), glyph(5, 32)
        pooled = torch.nn.functional.avg_pool2d(fine[None, None], 3)[0, 0]
        assert torch.corrcoef(torch.stack([pooled.flatten(), coarse.flatten()]))[0, 1] > 0.9

    def test_the_split_is_the_seed_s(self):
        task = ShapesConfig().build()
        first, again, other = task.split(0), task.split(0), task.split(1)
        assert first.sum() == 3660
        assert torch.equal(first, again)
        assert not torch.equal(first, other)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (
                {"sides": (0, 2)},
                r"ShapesConfig.sides must be numbers of sides, 0 or at least 3; got \(0, 2\)",
            ),
            ({"sides": (3, 3)}, "sides must be different from one another"),
            ({"sides": (0, 4, 3)}, r"sides must be in ascending order; got \(0, 4, 3\)"),
            ({"sides": ()}, "sides must be numbers of sides"),
            ({"resolution": 33}, "resolution must be even and at least 8; got 33"),
            ({"n_train": 14_641}, "n_train must be between 1 and 14640; got 14641"),
        ],
    )
    def test_what_cannot_be_drawn_gets_one_line(self, change, message):
        with pytest.raises(ConfigError, match=message):
            ShapesConfig(**change)


class TestResNet18:
    def test_it_has_the_parameters_of_the_paper(self):
        # 11,689,512 with 1,000 classes, as torchvision counts them.
        model = ResNet18(1000, 0)
        assert sum(p.numel() for p in model.parameters()) == 11_689_512
        assert model(torch.zeros(2, 3, 32, 32)).shape == (2, 1000)

    def test_a_folder_gives_all_weights_but_the_last_layer_s(self, tmp_path):
        config = transformers.ResNetConfig(**(BASIC | SMALL), num_labels=7)
        saved = transformers.ResNetForImageClassification(config)
        saved.save_pretrained(tmp_path)
        model = ResNet18(5, 0, tmp_path)
        assert_close(dict(model.network.resnet.state_dict()), dict(saved.resnet.state_dict()), rtol=0, atol=0)
        assert model(torch.zeros(1, 3, 32, 32)).shape == (1, 5)
        first, again = (dict(ResNet18(5, 1, tmp_path).named_parameters()) for _ in range(2))
        assert all(torch.equal(first[name], again[name]) for name in first)

    def test_what_is_no_such_folder_gets_one_line(self, tmp_path):
        with pytest.raises(ConfigError, match="is not a folder of a checkpoint"):
            ResNet18(5, 0, tmp_path)
        transformers.BertConfig().save_pretrained(tmp_path)
        with pytest.raises(ConfigError, match="holds a bert, no ResNet"):
            ResNet18(5, 0, tmp_path)
        transformers.ResNetConfig().save_pretrained(tmp_path)
        with pytest.raises(ConfigError, match=r"no ResNet-18 on three channels; got bottleneck layers \[3,"):
            ResNet18(5, 0, tmp_path)
        transformers.ResNetConfig(**BASIC, hidden_sizes=[4] * 4).save_pretrained(tmp_path)
        with pytest.raises(ConfigError, match="holds no weights in safetensors that can be read"):
            ResNet18(5, 0, tmp_path)
        (tmp_path / "model.safetensors").write_bytes(b"no tensors")
        with pytest.raises(ConfigError, match="holds no weights in safetensors that can be read"):
            ResNet18(5, 0, tmp_path)
        (tmp_path / "config.json").write_text("{")
        with pytest.raises(ConfigError, match="holds no configuration that can be read"):
            ResNet18(5, 0, tmp_path)

    def test_a_batch_of_one_image_is_refused(self):
        with pytest.raises(ConfigError, match=r"8 training images leave no batch of one; got .*no variance"):
            tiny(batch_size=7)
        with pytest.raises(ConfigError, match=r"batch_size must be at least 2; got 1\. One image alone"):
            tiny(batch_size=1)

    def test_without_the_library_it_says_what_to_install(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "transformers", None)
        with pytest.raises(
            UnsupportedError, match=r"ResNet-18 needs transformers; pip install 'spectrope\[hf\]'"
        ):
            ResNet18(5, 0)


class TestTraining:
    def test_a_stopped_run_goes_on_bit_for_bit(self, tmp_path):
        whole = grok(tiny(), tmp_path / "whole", CPU)
        asked = itertools.count(1)
        with pytest.raises(Interrupted, match="stopped at step 3 of at most 5"):
            grok(tiny(), tmp_path, CPU, stop=lambda: next(asked) == 3)
        again = grok(tiny(), tmp_path, CPU)
        assert_frame_equal(again.frame(PROGRESS), whole.frame(PROGRESS))
        ours, theirs = again.read_tensors(WEIGHTS)[0], whole.read_tensors(WEIGHTS)[0]
        assert all(torch.equal(ours[name], theirs[name]) for name in theirs)

    def test_an_epoch_visits_every_training_image_once(self, tmp_path):
        trainer = ShapesTrainer(tiny(), run_for(tiny(), tmp_path), CPU)
        visited = []
        for trainer.state.step in range(6):
            visited.append(trainer._batch())
        first, second = torch.cat(visited[:3]), torch.cat(visited[3:])
        assert first.sort().values.tolist() == second.sort().values.tolist() == trainer.train.tolist()
        assert first.tolist() != second.tolist()
        assert set(trainer.train.tolist()).isdisjoint(trainer.test.tolist())
        assert len(trainer.train) + len(trainer.test) == 16

    def test_it_learns_its_images_by_heart(self, tmp_path):
        progress = grok(tiny(steps=30, batch_size=8, learning_rate=1e-2), tmp_path, CPU).frame(PROGRESS)
        assert progress["train_loss"][-1] < 0.7 * progress["train_loss"][0]
        assert progress["train_accuracy"][-1] > progress["train_accuracy"][0]

    def test_the_command_trains_and_prints(self, tmp_path, monkeypatch, capsys):
        monkeypatch.setattr(console, "width", 80)
        words = ["grok-shapes", "--sides", "0", "3", "4", "--resolution", "16", "--n-train", "8"]
        words += ["--width", "4", "--steps", "2", "--distribution", "strip", "--k", "3", "--device", "cpu"]
        monkeypatch.chdir(tmp_path)
        assert main([*words, "--runs", str(tmp_path)]) == 0
        page = (tmp_path / "grok-shapes.html").read_text()
        assert "ResNet-18 of 0.0625 of the width counts sides" in page
        assert "8 of 81 train, distribution strip with k = 3" in page
        out = capsys.readouterr().out
        assert "shapes, 16 px, ResNet-18 of 0.0625 of the width, random weights, seed 0: step 2" in out
        assert re.search(r"held out % +MED", out)
        (run,) = find_runs(tmp_path)
        assert run.manifest["precision"] == "float32"
        assert main([*words, "--seeds"]) == 2
        assert "GrokShapes.seeds must be at least one" in capsys.readouterr().err


class TestActivations:
    def test_they_are_those_of_each_polygon_alone_in_a_cell(self):
        task = ShapesConfig(sides=(0, 3, 5), resolution=16, n_train=9).build()
        cells = list(task.alone())
        assert len(cells) == 4
        corner = cells[1][2, 0]
        assert_close(corner[:8, 8:], glyph(5, 8))
        assert corner[8:].abs().max() == corner[:, :8].abs().max() == 0

    def test_first_hidden_activations_are_the_stem_s(self):
        model = ResNet18(5, 0, width=2).eval()
        images = torch.rand(2, 3, 16, 16)
        stem = model.network.resnet.embedder.embedder
        by_hand = torch.nn.functional.conv2d(images, stem.convolution.weight, stride=2, padding=3)
        by_hand = (by_hand / (1 + stem.normalization.eps) ** 0.5).relu()  # Untrained statistics are 0 and 1.
        assert_close(model.first_hidden(images), by_hand.flatten(1))

    def test_measures_are_their_means_over_the_cells(self, tmp_path):
        task = ShapesConfig(sides=(0, 3, 5), resolution=16, n_train=9)
        one = replace(tiny(), task=task)
        trainer = ShapesTrainer(one, run_for(one, tmp_path), CPU)
        seen = trainer.look()
        points = [
            trainer.state.model.first_hidden(images).detach().double() for images in trainer.task.alone()
        ]
        steps = [[float((of[i + 1] - of[i]).norm()) for i in (0, 1)] for of in points]
        assert seen["med"] == pytest.approx(sum(map(sum, steps)) / 8)
        assert seen["uniformity"] == pytest.approx(sum(map(uniformity, points)) / 4)
        assert seen["med_unit"] is not None
        assert 0 < seen["med_unit"] < 2


class TestDistributions:
    def test_a_strip_holds_out_the_images_whose_upper_left_polygon_is_small(self):
        config = ShapesConfig(sides=(0, 3, 5), resolution=16, n_train=20, distribution=Strip(k=3))
        task = config.build()
        held_out, trains = task.held_out(), task.split(0)
        assert torch.equal(held_out, task.cells[:, 0] < 2)
        assert trains.sum() == 20
        assert not (trains & held_out).any()

    def test_a_square_holds_out_the_images_both_of_whose_upper_polygons_are_small(self):
        config = ShapesConfig(sides=(0, 3, 5), resolution=16, n_train=20, distribution=Square(k=3))
        task = config.build()
        assert torch.equal(task.held_out(), (task.cells[:, :2] < 2).all(1))

    def test_held_out_images_are_scored_apart(self, tmp_path):
        task = ShapesConfig(sides=(0, 3, 5), resolution=16, n_train=20, distribution=Strip(k=3))
        run = grok(replace(tiny(), task=task), tmp_path, CPU)
        images = run.frame("images")
        held_out = images.filter(images["image"] < 54)
        right = (held_out["answer"] == held_out["sides"]).mean()
        assert run.frame(PROGRESS)["held_out_accuracy"][-1] == right

    def test_what_leaves_too_few_images_gets_one_line(self):
        config = ShapesConfig(sides=(0, 3, 5), resolution=16, n_train=28, distribution=Strip(k=3))
        with pytest.raises(ConfigError, match="n_train must be at most 27, which are not held out; got 28"):
            config.build().split(0)

    @pytest.mark.parametrize(("kind", "k"), [(Strip, 5), (Strip, 2), (Square, 5), (Square, 2)])
    def test_a_region_holds_out_some_images_but_not_all(self, kind, k):
        told = r"distribution must be one that holds out some .* k is .* sides: at least 3 and below 5\."
        with pytest.raises(ConfigError, match=told):
            ShapesConfig(sides=(3, 4, 5), n_train=3, distribution=kind(k=k))
        assert ShapesConfig(sides=(3, 4, 5), n_train=3, distribution=kind(k=3)).build().held_out().any()

    def test_the_command_chooses_a_k_that_holds_something_out(self):
        chosen = GrokShapes(sides=(5, 6, 7), n_train=9, distribution="strip").experiment(0).task.distribution
        assert chosen == Strip(k=5)
        assert GrokShapes(distribution="strip").experiment(0).task.distribution == Strip(k=2)

    def test_random_images_are_drawn_as_before_there_were_distributions(self):
        drawn = numpy_stream(3, "shapes/split").permutation(11**4)[:3660]
        assert ShapesConfig().build().split(3).nonzero().squeeze(1).tolist() == sorted(drawn.tolist())
        assert "distribution" not in to_dict(ShapesConfig())


def test_decoupled_decay_shrinks_weights_by_its_share_of_the_rate(tmp_path):
    norms = {}
    for decay in ("l2", "decoupled"):
        one = tiny(steps=1, learning_rate=1e-2, weight_decay=10.0, decay=decay)
        progress = grok(one, tmp_path / decay, CPU).frame(PROGRESS)
        norms[decay] = progress["weight_norm"][-1] / progress["weight_norm"][0]
    assert norms["decoupled"] == pytest.approx(0.9, abs=0.05)
    assert norms["l2"] != pytest.approx(norms["decoupled"], abs=0.01)


def test_a_width_names_the_network_and_leaves_old_runs_their_hash():
    full, quarter = GrokShapes().experiment(0), GrokShapes(width=16).experiment(0)
    assert "width" not in to_dict(full)
    assert quarter.label == "shapes, 32 px, ResNet-18 of 0.25 of the width, random weights, seed 0"
    assert sum(p.numel() for p in ResNet18(49, 0, width=16).parameters()) < 11_689_512 / 15
    with pytest.raises(
        ConfigError, match=r"width must be 64 with `source`; got 16\. A checkpoint has its own"
    ):
        GrokShapes(width=16, source=Path("/weights")).experiment(0)
    with pytest.raises(ConfigError, match="width must be at least 1"):
        ShapesExperiment(width=0)


def test_without_the_library_no_run_is_begun(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "transformers", None)
    monkeypatch.chdir(tmp_path)
    assert main(["grok-shapes", "--runs", "runs", "--steps", "1"]) == 2
    assert "ResNet-18 needs transformers; pip install 'spectrope[hf]'." in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_experiments_round_trip():
    one = GrokShapes(source=Path("/weights")).experiment(3)
    assert from_dict(ShapesExperiment, to_dict(one)) == read_experiment(written(one)) == one
    assert one.label == "shapes, 32 px, ResNet-18, given weights, seed 3"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"steps": 0}, "ShapesTraining.steps must be at least 1; got 0"),
        ({"learning_rate": 0.0}, "learning_rate must be positive"),
        ({"weight_decay": -1.0}, "weight_decay must be at least 0"),
    ],
)
def test_impossible_settings_get_one_line(change, message):
    with pytest.raises(ConfigError, match=message):
        ShapesTraining(**change)
    with pytest.raises(ConfigError, match="seed must be at least 0"):
        ShapesExperiment(seed=-1)
