"""Array annotations are checked at run time in every test; each process computes on one thread.

Properties are tried on the same examples every time, however long one takes on a busy machine.
"""

import gc
import multiprocessing
import os
import random
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import jaxtyping
import pytest
from hypothesis import settings

import spectrope.core.errors  # noqa: F401  # Not checked: it has no arrays, and every configuration calls it.

# beartype checks a random item of each list, here by a generator of its own.
with mock.patch("random.getrandbits", random.Random(0).getrandbits):
    import beartype._check.code.codemain  # noqa: F401

from tests import array_checks
from tests.checks import checked
from tests.sampling import is_whole, left_out

# Checked modules take seconds to compile: every process that tests start shares what one has compiled.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
os.environ.setdefault("OMP_NUM_THREADS", "1")  # Before torch loads: sums depend on the number of threads.
jaxtyping.jaxtyped = checked
array_checks.install()
jaxtyping.install_import_hook("spectrope", "beartype.beartype")
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.load_profile("repeatable")


LONGEST = (  # Files with the longest single tests. One process gets all of the site, and none waits for it.
    "test_site_browser.py",
    "test_ray.py",
    "test_notebooks.py",
    "test_audit_in_ci.py",
    "test_campaigns.py",
    "test_session.py",
    "test_jupyter.py",
    "test_ten_minutes.py",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let all cases of sampled tests be asked for."""
    parser.addoption("--whole", action="store_true", help="run every case of tests that are sampled")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is not drawn, and put the longest tests first, so that short ones even out the work."""
    out = set[pytest.Item]() if is_whole(config) else left_out(items)
    config.hook.pytest_deselected(items=[*out])
    items[:] = [item for item in items if item not in out]
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.name, len(places)))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Import test modules without looking for garbage, of which they leave none."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_finish() -> None:
    """Fork worker processes from a server that has imported torch and the package, which takes seconds.

    Programs that tests run start their workers as users' programs do.
    """
    if "spectrope.lab.engines.local" in sys.modules:
        from spectrope.lab.engines import local

        multiprocessing.set_forkserver_preload(["pytest", "torch._dynamo", local.__name__])
        local.START_METHOD = "forkserver"


@pytest.fixture(scope="session", autouse=True)
def _files_need_not_outlast_the_machine() -> Iterator[None]:
    """Wait for no disk: tests of what a crash leaves run programs of their own, which do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        yield


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty folder to type commands in, on a wide terminal."""
    from spectrope.console.terminal import console

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(console, "width", 200)


@pytest.fixture(scope="session")
def trained_once(tmp_path_factory) -> Path:
    """A folder of one run, to be copied."""
    from tests.cli.typed import SMALL

    from spectrope.cli import main

    root = tmp_path_factory.mktemp("once") / "runs"
    assert main(("train", *SMALL, "--runs", str(root))) == 0
    return root


@pytest.fixture
def trained(here, trained_once, tmp_path, capsys) -> str:
    """The id of a run in the folder `runs` of an empty folder."""
    from spectrope.store import find_runs

    shutil.copytree(trained_once, tmp_path / "runs")
    capsys.readouterr()
    (run,) = find_runs(tmp_path / "runs")
    return run.id
