"""Load classes from the user's files, named as `path/to/file.py:Name` and identified by a hash."""

import hashlib
import importlib.util
import inspect
import sys
import traceback
import warnings
from collections.abc import Callable, Container
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import TypeVar

from spectrope.core.errors import ConfigError, SpectropeError, SpectropeWarning
from spectrope.core.session import SESSION, code_digest

Tried = TypeVar("Tried")
_loaded: dict[Path, str] = {}
_digests: dict[str, str] = {}  # Of the text of each file, by the name of its module.


def is_foreign(spec: str) -> bool:
    """Whether `spec` names something in a file, or a file, rather than a registered name."""
    return ".py:" in spec or spec.endswith(".py")


def load_object(spec: str, what: str = "class") -> object:
    """Run the file that `spec` names, and return the object of that name in it.

    Args:
        spec: As `path/to/file.py:Name`.
        what: What it is to be, "class" or "function", for messages.

    Raises:
        ConfigError: If the file cannot be run or does not define the name.
    """
    if ".py:" not in spec:
        raise ConfigError(f"{spec} names no {what} in a file; name it as path/to/file.py:Name.")
    file, _, name = spec.rpartition(":")
    if ".py:" in file:
        place, _, member = file.partition(".py:")
        ways = "--set encoding.FIELD=VALUE of train or compare, or in Python in its configuration"
        raise ConfigError(
            f"{place}.py:{member.partition(':')[0]} takes nothing behind its name"
            f"{f'; give settings as {ways}' if what == 'class' else ''}."
        )
    module = sys.modules[load_file(Path(file))]
    if not hasattr(module, name):
        raise ConfigError(f"{file} has no {name!r}.")
    return getattr(module, name)


class _Uncompiled(SourceFileLoader):
    """Loader that ignores cached bytecode, which hides an edit of the same length in the same second."""

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)


def load_file(path: Path) -> str:
    """Run a file once, as a module, and return the module's name.

    Raises:
        ConfigError: If the file is missing or fails.
    """
    path = path.resolve()
    if path in _loaded:
        _warn_of_edit(path)
        return _loaded[path]
    if not path.is_file():
        raise ConfigError(
            f"{path} is not a file; a class or function of your own is named as path/to/file.py:Name."
        )
    name = f"spectrope_foreign_{len(_loaded)}_{path.stem}"
    digest = _text_digest(path)
    spec = importlib.util.spec_from_file_location(name, path, loader=_Uncompiled(name, str(path)))
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise ConfigError(f"{path} cannot be run: {blamed(error, (path,)) or reason(error)}.") from error
    _loaded[path], _digests[name] = name, digest
    return name


def _text_digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _warn_of_edit(path: Path) -> None:
    """Say that the text of a file is not the one that was run, which stays in use in this process, since
    experiments that are under way rely on it."""
    try:
        same = _text_digest(path) == _digests[_loaded[path]]
    except OSError:
        return  # Nothing to use in its place.
    if not same:
        message = f"{path} has changed since it was run; start Python anew to use its present text."
        warnings.warn(message, SpectropeWarning, stacklevel=3)


def loaded_files() -> tuple[Path, ...]:
    """The files run so far; a worker process runs them too."""
    return tuple(_loaded)


def digest_of(member: object) -> str | None:
    """The digest of the user's file, or of the code in the user's session, that defines a class or function.

    None for classes and functions of installed packages.
    """
    module = getattr(member, "__module__", "")
    if module in SESSION:
        return code_digest(member)
    return (_digests.get(module) or "")[:16] or None


def file_digest(member: type) -> str:
    """SHA-256 of the file that defines a class: of the text that was run, where it is a user's."""
    return _digests.get(member.__module__) or _text_digest(Path(inspect.getfile(member)))


def reason(error: BaseException) -> str:
    """The kind of an error and the first line of its message."""
    text = str(error).strip().partition("\n")[0].rstrip(".")
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def blamed(error: BaseException, files: Container[Path]) -> str | None:
    """The `reason`, after the last line of any of the files that the error passed through; None if none."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [f"{frame.filename}, line {frame.lineno}" for frame in frames if Path(frame.filename) in files]
    return f"{lines[-1]}: {reason(error)}" if lines else None


def is_ours(member: type) -> bool:
    """Whether a class belongs to this package."""
    return member.__module__.partition(".")[0] == "spectrope"


def place_of(member: type) -> str:
    """Where a user-defined class is defined."""
    if member.__module__ in SESSION:
        return f"this session's {member.__name__}"
    return f"{Path(inspect.getfile(member)).name}:{member.__name__}"


def attempted(what: str, attempt: Callable[[], Tried]) -> Tried:
    """Call user-defined code, and return its result.

    Raises:
        ConfigError: If it fails, with the line of the user's file.
    """
    try:
        return attempt()
    except Exception as error:
        cause = blamed(error, loaded_files())
        if cause is None and isinstance(error, SpectropeError):
            raise
        cause = cause or reason(error)
        raise ConfigError(f"{what} fails in a test: {cause}.") from error
