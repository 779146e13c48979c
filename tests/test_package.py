"""What `pip install spectrope` promises."""

import importlib.metadata
import subprocess
import sys
import tomllib
import types
import zipfile
from pathlib import Path

import pytest
from tests.figures.synthetic import make_run

import spectrope
from spectrope.lab.job import Job

ROOT = Path(__file__).parent.parent


ROOMS = {"encodings", "lab", "tasks"}


@pytest.mark.parametrize("name", spectrope.__all__)
def test_the_front_door_opens(name):
    behind = getattr(spectrope, name)
    assert isinstance(behind, types.ModuleType) == (name in ROOMS)  # No submodule shadows what is meant.
    assert name in dir(spectrope)


def test_other_names_are_missing():
    with pytest.raises(AttributeError, match="No spectrope attribute atention"):
        _ = spectrope.atention  # pyright: ignore[reportAttributeAccessIssue]


def test_paths_may_be_texts(tmp_path):
    root = str(tmp_path / "runs")
    run = make_run(tmp_path / "runs", "rope")
    assert spectrope.runs(root) == [run] == [spectrope.load_run(str(run.path))]
    assert spectrope.report([run], str(tmp_path / "page.html")) == tmp_path / "page.html"
    assert spectrope.figure([run], "accuracy").save(str(tmp_path / "a.svg")) == tmp_path / "a.svg"
    one = spectrope.experiment("distance", "nope", epochs=1, n_examples=20)
    (trained,) = spectrope.execute([Job(one, ())], root, device="cpu")
    assert trained.path.parent == tmp_path / "runs"


def test_importing_the_package_imports_no_torch():
    code = "import sys, spectrope; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_the_package_is_typed_and_has_its_script_and_extras():
    metadata = importlib.metadata.metadata("spectrope")
    assert {"hf", "ray", "dev"} <= set(metadata.get_all("Provides-Extra") or [])
    assert (Path(spectrope.__file__).parent / "py.typed").exists()
    (script,) = (e for e in importlib.metadata.entry_points(group="console_scripts") if e.name == "spectrope")
    assert script.value == "spectrope.__main__:main"


def test_torch_is_a_range_in_the_metadata_and_a_pin_in_the_constraints():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (torch,) = (need for need in project["dependencies"] if need.startswith("torch"))
    assert ">=" in torch
    assert ",<" in torch
    assert "==" not in torch
    pins = (ROOT / "constraints.txt").read_text().splitlines()
    assert [pin for pin in pins if pin.startswith("torch==")] == ["torch==2.13.0"]


def test_the_wheel_holds_all_that_the_package_reads(tmp_path):
    pytest.importorskip("hatchling")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    packed = set(zipfile.ZipFile(wheel).namelist())
    here = (path for path in (ROOT / "src").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    assert {str(path.relative_to(ROOT / "src")) for path in here} <= packed
    assert "spectrope/study/results/mini.jsonl" in packed
    assert not [name for name in packed if not name.startswith(("spectrope/", "spectrope-"))]
    assert wheel.stat().st_size < 5 * 2**20  # Of which the rows of the study are more than half.
    metadata = next(name for name in packed if name.endswith("METADATA"))
    told = zipfile.ZipFile(wheel).read(metadata).decode()
    assert "Author: The SpectroPE maintainers" in told


def test_the_citation_is_of_this_version():
    lines = (ROOT / "CITATION.cff").read_text().splitlines()
    assert f"version: {spectrope.__version__}" in lines
