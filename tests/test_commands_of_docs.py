"""Every command of README and docs can be typed; those of the first pages are run, at a small size."""

import re
import shlex
from pathlib import Path

import pytest
import tyro
from tests.own_files import run_no_file_yet
from tests.test_docs import PAGES, ROOT, small

from spectrope.cli import main
from spectrope.cli.catalogue import commands
from spectrope.lab.training.scales import SCALES

FENCED = re.compile(r"^```(?:console|bash|sh|shell)?\n(.*?)^```", re.MULTILINE | re.DOTALL)
RUN = ("README.md", "docs/index.md", "docs/how-to/demo.md", "docs/how-to/command-line.md")
SIZE = {"compare": ("--examples", "60", "--workers", "1"), "train": ("--examples", "60")}
LISTED_ALONE = ("--completion", "--help")


def typed(page: Path) -> list[list[str]]:
    """The words of each command line of a page, without prompts, comments and what follows a pipe."""
    lines = "\n".join(FENCED.findall(page.read_text(encoding="utf-8"))).replace("\\\n", " ").splitlines()
    found = (re.match(r"\s*(?:\$ )?spectrope (.*)", line) for line in lines)
    words = (shlex.split(re.split(r" [|>&]", match[1])[0], comments=True) for match in found if match)
    return [one for one in words if one and "..." not in one]


ALL = [
    pytest.param(words, id=f"{page.stem}: {' '.join(words)}"[:90]) for page in PAGES for words in typed(page)
]


@pytest.mark.parametrize("words", ALL)
def test_commands_of_all_pages_can_be_typed(words):
    if words[0].startswith(LISTED_ALONE):
        assert main(words) == 0
        return
    assert words[0] in commands()
    config = (tyro.conf.OmitArgPrefixes, tyro.conf.FlagCreatePairsOff)
    given = [word for word in words[1:] if word not in ("--quiet", "--verbose")]
    assert tyro.cli(commands()[words[0]].load(), args=given, config=config) is not None


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("page", RUN)
def test_commands_of_the_first_pages_run(page, monkeypatch):
    run_no_file_yet(monkeypatch)
    monkeypatch.setitem(SCALES, "mini", {name: small(preset) for name, preset in SCALES["mini"].items()})
    for words in typed(ROOT / page):
        if not {"RUN", "CHECKPOINT"} & set(words):
            assert main([*words, *SIZE.get(words[0], ())]) == 0, words
