"""`spectrope train`: recipes, probes, and what is refused before there is a run."""

import json

import pytest
from tests.cli.typed import SMALL, refused

from spectrope.cli import main
from spectrope.core.config import to_dict
from spectrope.lab.training.scales import experiment
from spectrope.store import find_runs

pytestmark = pytest.mark.usefixtures("here")


def test_a_run_is_measured_as_it_trains(tmp_path, capsys):
    options = ("train", "--encoding", "nope", "--epochs", "1", "--examples", "150", "--probe", "learning")
    assert main((*options, "--every", "1")) == 0
    (run,) = find_runs(tmp_path / "runs")
    assert run.frame("learning").height == 2 * 24
    capsys.readouterr()
    assert "LearningProbe.every must be at least 1; got 0" in refused(capsys, *options, "--every", "0")


def test_a_recipe_is_an_experiment(tmp_path, capsys, trained):
    recipe = tmp_path / "recipe.json"
    recipe.write_text((tmp_path / "runs" / trained / "config.json").read_text())
    assert main(("train", "--recipe", "recipe.json")) == 0
    assert trained in capsys.readouterr().out
    fields = json.loads(recipe.read_text())["config"]
    fields["training"]["epocs"] = 3
    recipe.write_text(json.dumps(fields))
    assert "training.epocs: Unexpected keyword argument" in refused(
        capsys, "train", "--recipe", "recipe.json"
    )


@pytest.mark.parametrize("field", ["vocabulary", "n_labels", "max_length"])
def test_a_recipe_whose_model_is_too_small_for_its_task_is_refused(tmp_path, capsys, field):
    fields = to_dict(experiment("distance", "nope"))
    least = fields["model"][field]
    fields["model"][field] = least - 1
    (tmp_path / "r.json").write_text(json.dumps(fields))
    line = refused(capsys, "train", "--recipe", "r.json")
    told = f"DecoderConfig.{field} must be at least {least}; got {least - 1}. Task 'distance' has as many."
    assert told in line
    assert not (tmp_path / "runs").exists()


def test_a_probe_that_cannot_measure_a_model_is_refused_before_there_is_a_run(tmp_path, capsys):
    line = refused(capsys, "train", "--encoding", "mla", "--probe", "learning", *SMALL)
    assert "only supports multi-head attention; got Latent." in line
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read: No such file"),
        ("{", "is not valid JSON"),
        ("[1]", "must hold one JSON object"),
        ("[" * 100_000 + "]" * 100_000, "recipe r.json is nested too deep; see recipes/ for examples."),
        ('{"config": 5}', '"config" must hold a JSON object; got 5.'),
    ],
)
def test_a_recipe_that_is_none_is_refused(tmp_path, capsys, content, message):
    if content is not None:
        (tmp_path / "r.json").write_text(content)
    assert message in refused(capsys, "train", "--recipe", "r.json")
