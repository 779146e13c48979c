"""Every command on the pages about files of one's own, typed as it stands there."""

import re
import shlex
from pathlib import Path

import pytest
from tests.cli.typed import SMALL
from tests.own_files import run_no_file_yet
from tests.test_docs import BLOCK, ROOT

from spectrope.cli import main
from spectrope.store import find_runs

CONSOLE = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
TRAINS = ("train", "compare")


def commands(page: Path) -> list[list[str]]:
    lines = "".join(CONSOLE.findall(page.read_text())).splitlines()
    return [shlex.split(line.removeprefix("$ spectrope ")) for line in lines]


def with_run(argument: str, root: Path) -> str:
    """The newest run for RUN."""
    if "RUN" not in argument:
        return argument
    newest = max(find_runs(root), key=lambda run: run.path.stat().st_mtime)
    return argument.replace("RUN", newest.id)


@pytest.mark.sampled
@pytest.mark.parametrize(
    "name", [f"own-{what}" for what in ("task", "intervention", "measure", "quantity", "figure")]
)
def test_commands_work(name, trained, tmp_path, monkeypatch):
    run_no_file_yet(monkeypatch)
    page = ROOT / "docs" / "how-to" / f"{name}.md"
    (code,) = (block for block in BLOCK.findall(page.read_text()) if "write_text" in block)
    exec(compile(code, str(page), "exec"), {})
    for typed in commands(page):
        run_no_file_yet(monkeypatch)
        small = SMALL if typed[0] in TRAINS and "--recipe" not in typed else ()
        assert main([*(with_run(argument, tmp_path / "runs") for argument in typed), *small]) == 0
