"""The plugin for pytest: `--spectrope` checks locks as tests, and a fixture asserts a model's encoding.

pytest loads this module in every environment that has SpectroPE, so it imports nothing slow by itself.
"""

import warnings
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

NAME = "spectrope.lock"  # Also the end of a name, as in "draft.spectrope.lock".
ELSEWHERE = "what the lock does not name"  # The test of changes in no layer, embedding or mode of the lock.


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--spectrope`."""
    parser.getgroup("spectrope").addoption(
        "--spectrope", action="store_true", help=f"Check every {NAME} that is collected."
    )


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> "LockFile | None":
    """Collect locks, where that is asked for."""
    if parent.config.getoption("--spectrope") and file_path.name.endswith(NAME):
        return LockFile.from_parent(parent, path=file_path)
    return None


class LockFile(pytest.File):
    """A lock; its checkpoint is measured once, by the first of its tests."""

    def collect(self) -> Iterator["LockedPlace"]:
        """A test per layer, embedding and serving mode, and one of everything else."""
        from spectrope.checkpoints.lock import read_lock

        for name in (*read_lock(self.path).places, ELSEWHERE):
            yield LockedPlace.from_parent(self, name=name)

    @cached_property
    def result(self) -> Any:
        """The lock compared with a new measurement."""
        from spectrope.checkpoints.adapters import open_model, parse_layers
        from spectrope.checkpoints.lock import read_lock
        from spectrope.checkpoints.lock.opening import checked, source_of
        from spectrope.core import unwatched

        held = read_lock(self.path)
        layers = parse_layers(held.layers_taken) if held.layers_taken else None
        model = open_model(source_of(held, self.path), layers=layers)
        result = checked(held, model, unwatched)
        if result.lacking:
            warnings.warn(f"{self.path.name} lacks {'; '.join(result.lacking)}", stacklevel=1)
        return result


class LockedPlace(pytest.Item):
    """One layer, embedding or serving mode of a lock, or everything that is none of these."""

    parent: LockFile

    def runtest(self) -> None:
        """Fail if it changed; skip what could not be compared in whole."""
        result = self.parent.result
        places = result.other_places() if self.name == ELSEWHERE else (self.name,)
        if moves := [(where, move) for where in places for move in result.at(where)]:
            told = "\n".join(f"{where}: {move.code} {move}" for where, move in moves)
            pytest.fail(f"{told}\nchanged since the lock: {result.between}", pytrace=False)
        if missing := [f"{where}: {why}" for where in places if (why := result.why_not(where))]:
            pytest.skip("; ".join(missing))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """A user's mistake in one line, anything else as pytest has it."""
        from spectrope.core import SpectropeError

        if excinfo.errisinstance(SpectropeError):
            return f"spectrope: {excinfo.value}"
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        """Where it is reported."""
        return self.path, 0, f"{self.path.name}: {self.name}"


@pytest.fixture
def assert_encoding() -> Callable[..., None]:
    """A function `assert_encoding(model, lock=None)`.

    With a lock, or the path of one, it fails if the model has changed since, and warns if something, such as
    kernels of heads, could not be compared or the lock lacks what a new one would hold; without one, it fails
    if the model does not apply what its configuration declares.
    """
    return _assert_encoding


def _assert_encoding(model: Any, lock: Any = None) -> None:
    from spectrope.checkpoints.audit import audit
    from spectrope.checkpoints.lock import Lock, read_lock
    from spectrope.checkpoints.lock.opening import checked
    from spectrope.core import unwatched

    if lock is None:
        found = audit(model, watch=unwatched)
        if not found.ok:
            pytest.fail(str(found), pytrace=False)
        return
    result = checked(lock if isinstance(lock, Lock) else read_lock(lock), model, unwatched)
    if not result.ok:
        pytest.fail(str(result), pytrace=False)
    for why, places in result.reasons.items():
        warnings.warn(f"{', '.join(places)}: {why}", stacklevel=2)
    if result.lacking:
        warnings.warn(f"the lock lacks {'; '.join(result.lacking)}", stacklevel=2)
