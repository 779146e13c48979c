"""A commit names the code that computes: changes of the package count, results beside it do not."""

import subprocess

import pytest

from spectrope.core.version import __version__, commit


@pytest.fixture
def package(tmp_path):
    folder = tmp_path / "src" / "thing"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "rows.jsonl").write_text("1\n")
    author = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    for words in (("init", "-q"), ("add", "-A"), (*author, "commit", "-q", "-m", "First")):
        subprocess.run(("git", *words), cwd=tmp_path, check=True)
    return folder


def test_a_clean_tree_is_told_by_its_hash(package):
    head = subprocess.run(("git", "rev-parse", "HEAD"), cwd=package, capture_output=True, text=True).stdout
    assert commit(package) == head[:12]


def test_rows_that_a_study_adds_leave_the_code_as_it_was_committed(package):
    clean = commit(package)
    (package.parents[1] / "results" / "rows.jsonl").write_text("1\n2\n")
    (package.parents[1] / "results" / "pilots.jsonl").write_text("1\n")
    assert commit(package) == clean


@pytest.mark.parametrize("name", ["__init__.py", "a_new_encoding.py"])
def test_a_changed_or_new_module_is_told(package, name):
    clean = commit(package)
    (package / name).write_text("VALUE = 1\n")
    assert commit(package) == f"{clean}-dirty"


def test_without_a_repository_it_is_the_version(package):
    (package.parents[1] / ".git").rename(package.parents[1] / "gone")
    assert commit(package) == f"version {__version__}"
