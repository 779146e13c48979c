"""Every command of README and docs can be typed, and the cheap ones are run, at a small size."""

import re
import shlex
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import tyro
from tests.own_files import run_no_file_yet
from tests.test_docs import PAGES, small

from spectrope import lab
from spectrope.cli import main
from spectrope.cli.catalogue import commands
from spectrope.lab.measures import lengths
from spectrope.lab.training.scales import SCALES

SHELLS = ("", "console", "bash", "sh", "shell")  # Languages of blocks with commands.
LISTED_ALONE = ("--completion", "--help")
GROK = ("--p", "11", "--steps", "8", "--evaluate-every", "1")
SIZE = {
    "compare": ("--examples", "60", "--workers", "1"),
    "train": ("--examples", "60"),
    "grok": GROK,
    "audit": ("--length", "32"),
    "ablate": ("--examples", "8"),
    "atlas": ("--examples", "8"),
    "measure": (),
    "spectrum": ("--examples", "8"),
    "attention": (),
    "report": (),
    "runs": (),
    "encodings": (),
    "diff": ("--length", "32"),
}
HELD_OUT = 40  # Examples of each length, of which commands name no number.
NOT_RUN = {  # Words of commands that are only parsed, and why.
    "ray": "needs a cluster",
    "cuda": "needs a GPU",
    "induction-llama": "takes minutes to train",
    "--texts": "needs a tokenizer",
    "--recipe": "run by the tests of recipes",
    "--own": "run by tests/cli/test_own_pages.py, with the files of the pages",
    "1000000": "takes ten seconds",
    "--bench": "measures time",
    "--seeds": "repeats the same command",
    "--k": "needs a larger modulus than a small run has",
    "$SLURM_ARRAY_TASK_ID": "is set by SLURM",
    "RUN|CHECKPOINT": "stands for two commands",
    "costs.json": "takes a minute to measure",
    "bench": "measures time",
    "--tune": "trains dozens of models",
    "/shared/runs": "is a folder of a cluster",
    "--role": "needs a second checkpoint of the right kind; run by tests/checkpoints/pairs",
    "two-bases": "needs the folder of the page's example; run by tests/checkpoints/audit/test_repair.py",
    "model.gguf": "needs a converted file; run by tests/checkpoints/gguf",
    "path": "has no kernel of the lag, so that the command refuses it; run by tests/cli/commands",
    "--certificates": "is for encodings, which take no options of size; run by tests/verify",
    "R12": "is for runs with latent attention",
}


def blocks(text: str) -> Iterator[str]:
    """The content of the fenced blocks that hold commands."""
    inside: list[str] | None = None
    language = ""
    for line in text.splitlines():
        if not line.startswith("```"):
            if inside is not None:
                inside.append(line)
        elif inside is None:
            inside, language = [], line.removeprefix("```").strip()
        else:
            if language in SHELLS:
                yield "\n".join(inside)
            inside = None


def typed(page: Path) -> list[list[str]]:
    """The words of each command line of a page, without prompts, comments and what follows a pipe."""
    lines = "\n".join(blocks(page.read_text(encoding="utf-8"))).replace("\\\n", " ").splitlines()
    found = (re.match(r"\s*(?:\$ )?spectrope (.*)", line) for line in lines)
    words = (shlex.split(re.split(r" [|>&]", match[1])[0], comments=True) for match in found if match)
    return [one for one in words if one and "..." not in one]


ALL = [
    pytest.param(words, id=f"{page.stem}: {' '.join(words)}"[:90]) for page in PAGES for words in typed(page)
]


def is_run(words: list[str]) -> bool:
    """Whether a command is cheap enough to be run."""
    own_file = any(".py:" in word for word in words)  # Run with the files of their pages, by test_own_pages.
    return words[0] in SIZE and not own_file and not set(words) & set(NOT_RUN)


RUN = sorted({tuple(words) for page in PAGES for words in typed(page) if is_run(words)})


def test_commands_are_found_in_all_kinds_of_blocks():
    text = "```python\nx\n```\nspectrope no\n```console\n$ spectrope a\n```\n\n```\nspectrope b\n```\n"
    assert list(blocks(text)) == ["$ spectrope a", "spectrope b"]
    assert len(ALL) > 50
    assert len(RUN) > 15


@pytest.mark.parametrize("words", ALL)
def test_commands_of_all_pages_can_be_typed(words):
    if words[0].startswith(LISTED_ALONE):
        assert main(words) == 0
        return
    assert words[0] in commands()
    config = (tyro.conf.OmitArgPrefixes, tyro.conf.FlagCreatePairsOff)
    given = [word for word in words[1:] if word not in ("--quiet", "--verbose")]
    assert tyro.cli(commands()[words[0]].load(), args=given, config=config) is not None


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> Path:
    """A small Llama with random weights, as a folder."""
    transformers = pytest.importorskip("transformers")
    sizes = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 32, "max_position_embeddings": 64}
    config = transformers.LlamaConfig(**sizes, num_hidden_layers=2, num_attention_heads=2)
    folder = tmp_path_factory.mktemp("models") / "checkpoint"
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    return folder


@pytest.mark.sampled
@pytest.mark.parametrize("words", RUN, ids=lambda words: " ".join(words)[:90])
def test_cheap_commands_run(words, trained, checkpoint, monkeypatch):
    run_no_file_yet(monkeypatch)
    monkeypatch.setitem(SCALES, "mini", {name: small(preset) for name, preset in SCALES["mini"].items()})
    monkeypatch.setattr(lab, "extrapolate", partial(lab.extrapolate, examples=HELD_OUT))
    monkeypatch.setattr(lengths, "EXAMPLES", HELD_OUT)
    placed = [trained if word == "RUN" else word for word in words]
    placed = [str(checkpoint) if re.match(r"path/to/", word) else word for word in placed]
    assert main([*placed, *SIZE[words[0]]]) == 0
