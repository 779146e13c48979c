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
        """A test per layer, embedding and serving mode."""
        from spectrope.checkpoints.lock import read_lock

        for name in read_lock(self.path).places:
            yield LockedPlace.from_parent(self, name=name)

    @cached_property
    def result(self) -> Any:
        """The lock compared with a new measurement."""
        from spectrope.checkpoints.adapters import open_model, parse_layers
        from spectrope.checkpoints.adapters.parts import part_of
        from spectrope.checkpoints.lock import read_lock
        from spectrope.checkpoints.lock.opening import checked, source_of
        from spectrope.core import unwatched

        held = read_lock(self.path)
        layers = parse_layers(held.layers_taken) if held.layers_taken else None
        model = open_model(source_of(held, self.path), layers=layers)
        result = checked(held, part_of(model, held.part) if held.part else model, unwatched)
        if result.lacking:
            warnings.warn(f"{self.path.name} lacks {'; '.join(result.lacking)}", stacklevel=1)
        return result


class LockedPlace(pytest.Item):
    """One layer, embedding or serving mode of a lock."""

    parent: LockFile

    def runtest(self) -> None:
        """Fail if it changed; skip a layer of which only the encoding could be compared."""
        from spectrope.checkpoints.lock.check import UNCOMPARED

        result = self.parent.result
        if moves := result.at(self.name):
            told = "\n".join(f"{move.code} {move}" for move in moves)
            pytest.fail(f"{told}\nchanged since the lock: {result.between}", pytrace=False)
        if self.name in result.other_weights:
            pytest.skip(UNCOMPARED)

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

    With a lock, or the path of one, it fails if the model has changed since, and warns if kernels of heads
    could not be compared or the lock lacks what a new one would hold; without one, it fails if the model does
    not apply what its configuration declares.
    """
    return _assert_encoding


def _assert_encoding(model: Any, lock: Any = None) -> None:
    from spectrope.checkpoints.audit import audit
    from spectrope.checkpoints.lock import Lock, read_lock
    from spectrope.checkpoints.lock.check import UNCOMPARED
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
    if not result.whole:
        warnings.warn(f"{', '.join(result.other_weights)}: {UNCOMPARED}", stacklevel=2)
    if result.lacking:
        warnings.warn(f"the lock lacks {'; '.join(result.lacking)}", stacklevel=2)
