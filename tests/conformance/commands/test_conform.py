"""`spectrope conform`: what it answers, and what it refuses."""

from pathlib import Path
from typing import Any

import pytest
from tests.conformance.test_conform import GOOD, SOME

from spectrope.cli import main
from spectrope.conformance import RotaryCell, conform
from spectrope.conformance.implementation import load
from spectrope.core import ConfigError


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(GOOD, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("{file}:missing", "has no 'missing'"),
        ("{file}:of_one", r"must take \(x, positions\)"),
        ("{file}:short", r"must return a tensor with shape \(1, 2, 12, 64\); got"),
        ("{file}:torch", "is not a function; got module"),
        ("no_such_module:f", "no_such_module cannot be imported"),
        ("leaves_at_once:f", "leaves_at_once cannot be imported: SystemExit"),
        ("json", "named as module:name"),
        ("json:nothing", "json has no 'nothing'"),
    ],
)
def test_bad_input_is_one_line_with_code_2(
    name: str, what: str, file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    (file.parent / "leaves_at_once.py").write_text("raise SystemExit(0)", encoding="utf-8")
    monkeypatch.syspath_prepend(file.parent)
    assert main(["conform", name.format(file=file)]) == 2
    said = capsys.readouterr().err
    assert len(said.strip().splitlines()) == 1
    with pytest.raises(ConfigError, match=what):
        conform(load(name.format(file=file)).apply, name, only=[RotaryCell()])


def test_the_command_answers_by_its_exit_code(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
):
    monkeypatch.setattr("spectrope.conformance.suite.cells", lambda: iter(SOME[:12]))
    assert main(["conform", f"{file}:apply_rope"]) == 0
    assert main(["conform", f"{file}:in_its_type", "--json"]) == 1
    assert '"ok": false' in capsys.readouterr().out
