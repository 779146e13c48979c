"""Plug-ins of installed distributions, of which a broken one costs only what it adds."""

import importlib
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from spectrope.core import Registry, SpectropeWarning

GROUP = "spectrope.of_this_test"


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A folder on the path, and what installs a distribution of that name with entry points in it."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def install(name: str, group: str, points: dict[str, str]) -> Path:
        folder = tmp_path / f"{name}-0.1.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1\n")
        lines = [f"{key} = {value}" for key, value in points.items()]
        (folder / "entry_points.txt").write_text("\n".join([f"[{group}]", *lines, ""]))
        return tmp_path

    return install


def family() -> Registry[type]:
    return Registry("colour", "spectrope.core.registry", base="Colour", group=GROUP)


def test_a_broken_plug_in_is_named_and_the_others_are_loaded(installed):
    folder = installed(
        "aaa_broken", GROUP, {"x": "no_such_module_here", "y": "colours_that_fail", "w": "colours_that_exit"}
    )
    (folder / "colours_that_exit.py").write_text("raise SystemExit(3)\n")
    (folder / "colours_that_fail.py").write_text("1 / 0\n")
    installed("sound", GROUP, {"z": "colours_that_load"})
    (folder / "colours_that_load.py").write_text("LOADED = True\n")
    colours = family()
    with pytest.warns(SpectropeWarning) as told:
        assert "red" not in colours
    assert sorted(str(one.message) for one in told) == [
        "colours_that_exit, a plug-in of aaa_broken, cannot be loaded: SystemExit: 3. Some or all of what it "
        "adds to the kind 'colour' is missing.",
        "colours_that_fail, a plug-in of aaa_broken, cannot be loaded: ZeroDivisionError: division by zero. "
        "Some or all of what it adds to the kind 'colour' is missing.",
        "no_such_module_here, a plug-in of aaa_broken, cannot be loaded: ModuleNotFoundError: No module "
        "named 'no_such_module_here'. Some or all of what it adds to the kind 'colour' is missing.",
    ]
    assert sys.modules["colours_that_load"].LOADED
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "red" not in colours


@pytest.mark.parametrize("module", ["no_such_module_here.either", "of_bad_syntax"])
@pytest.mark.parametrize(
    ("group", "words"),
    [
        ("spectrope.encodings", ("spectrum", "--encoding", "alibi", "--length", "16")),
        ("spectrope.encodings", ("encodings",)),
        ("spectrope.cli.commands", ("--help",)),
    ],
)
def test_commands_go_on_without_a_broken_plug_in(group, words, module, installed):
    folder = installed("broken", group, {"nothing": module})
    (folder / "of_bad_syntax.py").write_text("def (\n")
    command = [sys.executable, "-m", "spectrope", *words]
    ended = subprocess.run(
        command,
        env=os.environ | {"PYTHONPATH": str(folder)},
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0
    assert "a plug-in of broken" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_the_page_names_groups_that_there_are():
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "as-a-package.md").read_text("utf-8")
    named = set(re.findall(r"^\| `([\w.]+)` \|", page, re.MULTILINE))
    assert len(named) > 8
    for base in ("figures", "lab.ablation.fills", "lab.measures", "lab.quantities", "checkpoints.trackers"):
        importlib.import_module(f"spectrope.{base}.base")
    registries = {
        value.group
        for module in list(sys.modules.values())
        if module.__name__.startswith("spectrope")
        for value in list(vars(module).values())
        if isinstance(value, Registry)
    }
    assert named - {"spectrope.cli.commands"} <= registries
