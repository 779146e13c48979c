"""`spectrope grok` as a user types it, and the page that it writes."""

import json
import re

import numpy as np
import pytest
import torch

from spectrope.cli import BAD_INPUT, INTERRUPTED, main
from spectrope.console.terminal import console
from spectrope.core.errors import ConfigError, Interrupted
from spectrope.encodings.base import ENCODINGS
from spectrope.encodings.learned import Learned
from spectrope.encodings.rope import RoPE
from spectrope.grokking import show as grok_show
from spectrope.grokking.commands.grok import Grok
from spectrope.grokking.config import GrokExperiment, GrokTraining
from spectrope.grokking.figures import circle_panels, in_wave, principal, strongest_waves
from spectrope.grokking.models.mlp import ModularMLP
from spectrope.grokking.models.transformer import ModularTransformer
from spectrope.grokking.page import render_grok, write_grok
from spectrope.grokking.show import spark
from spectrope.grokking.tasks.distributions import Square, Strip
from spectrope.grokking.tasks.modular import ModularConfig
from spectrope.lab.job import train as grok_run
from spectrope.store import find_runs

QUICK = (
    "grok",
    "--p",
    "11",
    "--fraction",
    "0.7",
    "--model",
    "mlp",
    "--steps",
    "40",
    "--evaluate-every",
    "10",
)


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(console, "width", 80)


def test_runs_are_trained_once_printed_and_reported(tmp_path, capsys):
    command = (*QUICK, "--seeds", "0", "1", "1", "--distribution", "square", "--k", "3", "--compare-measures")
    assert main(command) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines()[:-1])) <= 80
    assert re.search(
        r"add mod 11, square, mlp, seed 1: step 40, train \d+ %, test \d+ % [▁-█]+ MED \d\.\d{3}", out
    )
    assert re.search(r"seed +steps +grokked at +train % +test % +held out % +MED +norm +s", out)
    assert re.search(r"measure +rho +low +high +partial +lead", out)
    assert len(find_runs(tmp_path / "grok-runs")) == 2
    page = (tmp_path / "grok.html").read_text()
    assert "add mod 11" in page
    assert "How well measures track the test loss" in page
    assert main(command) == 0
    assert "step 40" not in capsys.readouterr().out  # nothing was trained again


def test_options_become_the_experiment():
    plain = Grok().experiment(3)
    assert plain.task == ModularConfig(p=59)
    assert plain.seed == 3
    assert isinstance(plain.model, ModularTransformer.Config)
    assert plain.model.n_layers == 1
    assert plain.model.encoding == Learned.Config(std=128**-0.5, d_model=128, max_length=3)
    other = Grok(
        p=13, op="a*b + 1", distribution="strip", encoding="rope", n_layers=2, loss="mse", weight_decay=0.5
    ).experiment(0)
    assert other.task == ModularConfig(p=13, operation="a*b + 1", distribution=Strip(k=6))
    assert other.model == ModularTransformer.Config(encoding=RoPE.Config(), n_layers=2)
    assert (other.training.loss, other.training.weight_decay) == ("mse", 0.5)
    assert Grok(distribution="square", k=4).experiment(0).task.distribution == Square(k=4)
    assert Grok(model="mlp").experiment(0).model == ModularMLP.Config()
    assert Grok(model="mlp", embedding="one_hot").experiment(0).model == ModularMLP.Config(
        embedding="one_hot"
    )
    assert Grok(stop_after="never").experiment(0).training.stop is None


def test_an_encoding_of_the_user_is_taken_from_its_file(tmp_path, monkeypatch):
    monkeypatch.setattr(ENCODINGS, "_members", {name: ENCODINGS[name] for name in ENCODINGS})
    (tmp_path / "mine.py").write_text(
        "from dataclasses import dataclass\n"
        "from spectrope.encodings.base import Encoding, EncodingConfig, Tag\n"
        "class Mine(Encoding, name='mine'):\n"
        "    tags = Encoding.tags | {Tag.LEARNED}\n"
        "    @dataclass(frozen=True, kw_only=True)\n"
        "    class Config(EncodingConfig):\n"
        "        pass\n"
    )
    model = Grok(encoding="mine.py:Mine").experiment(0).model
    assert isinstance(model, ModularTransformer.Config)
    assert model.encoding.kind == "mine"
    small = ("--p", "7", "--fraction", "0.7", "--steps", "2", "--evaluate-every", "1")
    assert main(("grok", "--encoding", "mine.py:Mine", *small)) == 0
    page = (tmp_path / "grok.html").read_text(encoding="utf-8")
    assert "<h2>Laws of mine</h2>" in page
    wrong = "mine declares the law learned, which does not hold: the declaration is wrong; remove the tag."
    assert page.index(wrong) < page.index("<h2>")  # Above all tables and figures.


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--p", "57"), "ModularConfig.p must be prime; got 57."),
        (("--fraction", "1.5"), "fraction must be a share of all pairs strictly between 0 and 1; got 1.5."),
        (("--distribution", "square", "--k", "59"), "Square.k must be below p - 1, 58; got 59."),
        (("--k", "3"), "--k goes with --distribution square or strip; random holds nothing out."),
        (("--distribution", "stripe"), "unknown data distribution 'stripe'; did you mean strip or square?"),
        (("--op", "a ** b"), "operation 'a ** b' holds 'a ** b'; write arithmetic in a and b"),
        (("--encoding", "fope"), "FoPE.Config.max_length must be at least 7"),
        (("--fraction", "0.01"), "There are 59 results, and 35 training pairs."),
        (("--seeds",), "Grok.seeds must be at least one; got ()."),
        (("--steps", "0"), "GrokTraining.steps must be at least 1; got 0."),
        (("--p", "-3", "--distribution", "square"), "ModularConfig.p must be between 2 and 512; got -3."),
        (("--learning-rate", "inf"), "learning_rate must be positive and finite; got inf."),
        (("--offset", "1000000"), "offset must be between 0 and 512; got 1000000."),
        (("--model", "mlp", "--n-layers", "2"), "--n-layers and --encoding go with --model transformer."),
        (("--embedding", "one_hot"), "--embedding goes with --model mlp."),
        (("--op", "a**True"), "operation 'a**True' holds 'a ** True'"),
        (("--steps", "50", "--compare-measures"), "evaluate_every must be small enough for 4 evaluations"),
    ],
)
def test_mistakes_are_one_line_and_exit_2(tmp_path, capsys, arguments, message):
    assert main(("grok", *arguments)) == BAD_INPUT
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1
    assert not (tmp_path / "grok.html").exists()


SMALL = ("grok", "--p", "7", "--fraction", "0.7", "--model", "mlp", "--steps", "40", "--evaluate-every", "10")
EARLY = ("--set", "training.stop.accuracy=0.01", "training.stop.steps=0")


def test_a_run_that_stops_too_early_for_scores_has_its_page(tmp_path, capsys):
    assert main((*SMALL, *EARLY, "--compare-measures", "--json")) == 3
    printed = capsys.readouterr()
    assert (
        "spectrope: measures are not compared: a run stopped after fewer than 4 evaluations; lower "
        "--evaluate-every, or use --stop-after never.\n"
    ) in printed.err
    assert "measures" not in json.loads(printed.out)
    assert "How well measures track" not in (tmp_path / "grok.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("options", "share"), [(EARLY, "1 %"), (("--stop-after", "never"), "99 %"), ((), "99 %")]
)
def test_the_accuracy_of_the_stopping_rule_is_told(tmp_path, capsys, options, share):
    assert main((*SMALL, *options)) == 0
    assert f"grokked at: the step from which test accuracy is at least {share}" in capsys.readouterr().out
    page = (tmp_path / "grok.html").read_text(encoding="utf-8")
    assert f"a run answers at least {share} of the test pairs correctly" in page
    assert f"the step from which test accuracy is at least {share}." in page
    assert ("99 %" in page) == (share == "99 %")


def test_the_page_counts_the_training_pairs_and_names_what_is_not_the_default(tmp_path):
    hole = ("--p", "11", "--fraction", "0.5", "--distribution", "strip", "--k", "8")
    quick = ("grok", "--model", "mlp", "--steps", "2", "--evaluate-every", "1")
    assert main((*quick, *hole, "--loss", "mse", "--offset", "3")) == 0
    page = (tmp_path / "grok.html").read_text(encoding="utf-8")
    assert "mlp, loss mse, offset 3; 22 of 121 pairs train (18 %), distribution strip with k = 8." in page
    assert main((*quick, "--p", "11")) == 0
    page = (tmp_path / "grok.html").read_text(encoding="utf-8")
    assert "mlp; 60 of 121 pairs train (50 %), distribution random." in page


def test_embeddings_of_one_dimension_are_drawn_on_a_line(tmp_path):
    assert main((*SMALL, "--set", "model.d_model=1")) == 0
    assert (tmp_path / "grok.html").exists()
    line = np.arange(5.0)[:, None]
    for drawn in (principal(line), in_wave(line, 1)):
        assert drawn.shape == (5, 2)
        assert np.ptp(drawn, axis=0).tolist() == [4, 0]


def test_composites_are_accepted_where_they_are_asked_for(capsys):
    few = ("grok", "--p", "12", "--allow-composite", "--model", "mlp", "--steps", "1")
    assert main(few) == 0
    assert "add mod 12" in capsys.readouterr().out


def test_a_model_that_diverges_is_named(capsys):
    far = ("--p", "11", "--learning-rate", "1e30", "--steps", "20", "--evaluate-every", "10")
    assert main(("grok", *far)) == BAD_INPUT
    assert re.search(r"diverged: loss \w+ after step 10; lower the learning rate", capsys.readouterr().err)


def test_an_interruption_keeps_what_is_done(monkeypatch, capsys):
    def stopped(*arguments: object, **options: object) -> None:
        raise Interrupted("stopped at step 3 of at most 40, saved in here.")

    monkeypatch.setattr(grok_show, "execute", stopped)
    assert main(QUICK) == INTERRUPTED
    assert "stopped at step 3 of at most 40, saved in here. Run the same command" in capsys.readouterr().err


def test_the_course_is_squeezed_into_a_few_blocks():
    assert spark([0.0, 0.5, 1.0]) == "▁▅█"
    assert spark([0.0] * 24 + [1.0] * 24) == 6 * "▁" + 6 * "█"
    assert spark([0.0] * 12 + [1.0]) == 11 * "▁" + "█"  # The newest is always there.
    assert max(len(spark([0.1] * n)) for n in range(1, 200)) <= 12


@pytest.fixture
def run(tmp_path):
    task = ModularConfig(p=11, fraction=0.7)
    training = GrokTraining(steps=30, evaluate_every=5)
    model = ModularMLP.Config(d_model=8, hidden=16)
    return grok_run(GrokExperiment(task=task, model=model, training=training), tmp_path, torch.device("cpu"))


def test_the_page_draws_every_panel_from_the_run(run):
    page = render_grok([run])
    specs = json.loads(re.findall(r'id="specs">(.*?)</script>', page, re.DOTALL)[0])
    assert page.count('class="panel"') == len(specs) == 2 + 11 + 4 + 2 * 4 + 1
    pairs = specs[-1]["data"]["values"]
    assert len(pairs) == 121
    right = [row for row in pairs if row["answer"] == row["label"]]
    assert all(row["outcome"].endswith("right") for row in right)
    assert len(right) == (run.frame("pairs")["answer"] == run.frame("pairs")["label"]).sum()
    assert "How well measures track" not in page


def test_a_page_needs_a_run(tmp_path):
    with pytest.raises(ConfigError, match="a page needs at least one run"):
        write_grok([], tmp_path / "page.html")


def test_waves_lie_on_circles_in_their_own_plane():
    angle = 2 * np.pi * np.arange(23)[:, None] * np.array([3, 7]) / 23
    rng = np.random.default_rng(0)
    axes = np.linalg.qr(rng.standard_normal((9, 4)))[0].T
    embeddings = 5 + np.concatenate([2 * np.cos(angle), 2 * np.sin(angle)], 1)[:, [1, 3, 0, 2]] @ axes
    assert set(strongest_waves(embeddings)[:2]) == {3, 7}
    assert np.linalg.norm(in_wave(embeddings, 3), axis=1) == pytest.approx(np.full(23, 2.0))
    assert np.linalg.norm(principal(embeddings), axis=0).min() > 1


def test_waves_on_the_page_go_round_the_operation_s_group(tmp_path):
    task = ModularConfig(p=7, operation="a*b", fraction=0.8)
    training = GrokTraining(steps=2, evaluate_every=1)
    model = ModularMLP.Config(d_model=4, hidden=8)
    run = grok_run(GrokExperiment(task=task, model=model, training=training), tmp_path, torch.device("cpu"))
    shown = circle_panels(run)[0].layers["residues"].rows
    assert [row["residue"] for row in shown] == [1, 3, 2, 6, 4, 5]
