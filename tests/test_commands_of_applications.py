"""Every command on the pages of grokking and fast attention runs, at a small size."""

import importlib
import re
import shlex
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import pytest
import torch
import transformers
from benchmarks import fast_attention, grok_shapes, grokking
from benchmarks.harness import Case
from tests.checkpoints.adapters import trained
from tests.checkpoints.audit.families import FAMILIES
from tests.test_commands_of_docs import typed
from tests.test_docs import ROOT

from spectrope.cli import main
from spectrope.fast import calibration
from spectrope.grokking.commands import grok_theory
from spectrope.grokking.least_norm import NormDescent
from spectrope.grokking.models.vision import BASIC
from spectrope.lab.engines.local import execute
from spectrope.lab.job import Job
from spectrope.lab.training.scales import experiment

FENCED = re.compile(r"^```(\S*)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`(spectrope [^`]+)`")
MODULE = re.compile(r"`python -m\s+([^`]+)`")
OF_GROKKING = ("--steps", "3", "--evaluate-every", "1", "--seeds", "0", "--device", "cpu")
OF_SHAPES = (
    *("--sides", "0", "3", "--resolution", "16", "--n-train", "8", "--batch-size", "4"),
    *("--steps", "2", "--evaluate-every", "1", "--device", "cpu"),
)
OF_APPLICATIONS = {
    "grok": OF_GROKKING,
    "grok-shapes": OF_SHAPES,
    "grok-theory": ("--p", "5", "--tokens", "4"),
    "attention bench": ("--head-dim", "4", "--shortest", "32", "--longest", "64"),
    "attention plan": ("--length", "4096", "--examples", "2"),
    "claims run": ("--dry-run",),
    "train": ("--epochs", "1", "--examples", "60"),
}
OF_MODULES = {
    "benchmarks.fast_attention": ("--longest", "256", "--repeats", "1"),
    "benchmarks.trained_attention": ("--length", "512"),
    "benchmarks.grok_shapes": ("--minutes", "1"),
}
PAGES = ["how-to/grokking", "how-to/fast-attention", "explanation/lower-bound"]


def shown(page: Path) -> list[list[str]]:
    """The words of each command of a page, in blocks and in its sentences, without repetition."""
    text = FENCED.sub("", page.read_text(encoding="utf-8"))
    inline = [shlex.split(" ".join(one.split()))[1:] for one in INLINE.findall(text)]
    return [list(words) for words in dict.fromkeys(map(tuple, typed(page) + inline))]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """What pages call RUN and CHECKPOINT, and `resnet-18`, small."""
    root = tmp_path_factory.mktemp("models")
    one = experiment("distance", "rope", epochs=1, n_examples=60)
    [run] = execute([Job(one, tables=())], root / "runs", device="cpu")
    FAMILIES["smollm3"]().save_pretrained(root / "checkpoint")
    thin = transformers.ResNetConfig(**BASIC, embedding_size=4, hidden_sizes=[4] * 4)
    transformers.ResNetForImageClassification(thin).save_pretrained(root / "resnet-18")
    return {
        "RUN": str(run.path),
        "CHECKPOINT": str(root / "checkpoint"),
        "resnet-18": str(root / "resnet-18"),
    }


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("page", PAGES)
def test_commands_of_grokking_and_fast_attention_run(page, models, monkeypatch):
    monkeypatch.setattr(calibration, "LENGTHS", {"cpu": (64,), "cuda": (64,)})
    monkeypatch.setattr(calibration, "ROUNDS", 1)
    monkeypatch.setattr(grok_theory, "NormDescent", partial(NormDescent, fit=5, stages=1, steps=5))
    words_of_page = shown(ROOT / "docs" / f"{page}.md")
    assert len(words_of_page) > 1
    for words in words_of_page:
        for target in ("RUN", "CHECKPOINT") if "RUN|CHECKPOINT" in words else (None,):
            asked = [models.get(target if word == "RUN|CHECKPOINT" else word, word) for word in words]
            size = OF_APPLICATIONS.get(words[0], OF_APPLICATIONS.get(" ".join(words[:2]), ()))
            assert main([*asked, *size]) == 0, words


def once(name: str, cases: Iterable[Case], **_: object) -> None:
    """Check and compute each case once instead of timing it, which tests of the harness do."""
    for case in cases:
        case.gate()
        case.fast()
        print(name, case.label)


@pytest.fixture
def small(tmp_path, monkeypatch):
    """Modules of measurements, small, without times, storing nothing in the repository."""
    threads = torch.get_num_threads()
    monkeypatch.setattr(fast_attention, "run", once)
    monkeypatch.setattr(grokking, "run", once)
    monkeypatch.setattr(fast_attention, "LENGTHS", (256,))
    monkeypatch.setattr(grokking, "P", 11)
    monkeypatch.setattr(trained, "STEPS", 1)
    monkeypatch.setattr(grok_shapes, "ROWS", tmp_path / "rows.jsonl")
    monkeypatch.setattr(grok_shapes, "SEARCH", (shlex.join(OF_SHAPES),))
    yield
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("here", "small")
@pytest.mark.parametrize("page", PAGES)
def test_modules_of_grokking_and_fast_attention_run(page, models, capsys):
    text = (ROOT / "docs" / f"{page}.md").read_text("utf-8")
    commands = {" ".join(one.split()) for one in MODULE.findall(text)}
    assert commands
    for command in sorted(commands):
        name, *words = command.split()
        asked = [models.get(word, word) for word in words] + list(OF_MODULES.get(name, ()))
        module = importlib.import_module(name)
        module.main(asked) if name in OF_MODULES else module.main()
        assert capsys.readouterr().out, command
