"""Encodings from a user's own file, named as `path/to/file.py:ClassName`."""

import hashlib
import importlib.util
import sys
import traceback
from collections.abc import Container, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from spectrope.core.errors import ConfigError
from spectrope.encodings.base import ENCODINGS, Encoding
from spectrope.encodings.laws import LawCheck, Sizes, check_laws

_loaded: dict[Path, str] = {}
_digests: dict[str, str] = {}  # Of the text of each file, by the name of its module.


def is_foreign(spec: str) -> bool:
    """Whether `spec` names a class in a file, or a file, rather than a registered encoding."""
    return ".py:" in spec or spec.endswith(".py")


def load_encoding(spec: str) -> str:
    """Run the file that `spec` names, which registers its encodings, and return the class's registered name.

    Raises:
        ConfigError: One line, if the file cannot be run or the class is no registered encoding.
    """
    if ".py:" not in spec:
        raise ConfigError(f"{spec} names no class in a file; name it as path/to/file.py:ClassName.")
    file, _, name = spec.rpartition(":")
    module = sys.modules[load_file(Path(file))]
    cls = getattr(module, name, None)
    if not (isinstance(cls, type) and issubclass(cls, Encoding)):
        raise ConfigError(f"{file} has no class {name!r} that derives from Encoding.")
    kind = getattr(cls.Config, "kind", None)
    if kind is None or ENCODINGS[kind] is not cls:
        raise ConfigError(f'{spec} is not registered; declare it as `class {name}(Encoding, name="...")`.')
    try:
        cls.Config()
    except TypeError as error:
        raise ConfigError(f"{spec}: every field of its Config needs a default; {reason(error)}.") from None
    return kind


def load_file(path: Path) -> str:
    """Run a file once, as a module, and return the module's name.

    Raises:
        ConfigError: One line, if it is missing or fails.
    """
    path = path.resolve()
    if path in _loaded:
        return _loaded[path]
    if not path.is_file():
        raise ConfigError(f"{path} is no file; encodings of your own are named as path/to/file.py:ClassName.")
    name = f"spectrope_foreign_{len(_loaded)}_{path.stem}"
    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    spec = importlib.util.spec_from_file_location(name, path)
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


def reason(error: BaseException) -> str:
    """The kind of an error and the first line of what it says."""
    text = str(error).strip().partition("\n")[0].rstrip(".")
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def blamed(error: BaseException, files: Container[Path]) -> str | None:
    """The `reason`, behind the last line that the error went through in any of the files; None if in none."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [f"{frame.filename}, line {frame.lineno}" for frame in frames if Path(frame.filename) in files]
    return f"{lines[-1]}: {reason(error)}" if lines else None


def loaded_files() -> tuple[Path, ...]:
    """The files run so far; a worker process runs them too."""
    return tuple(_loaded)


def versions_in(config: Any) -> dict[str, str]:
    """The encodings from files that a configuration names at any depth, each with its file's digest.

    They belong to what identifies a run: an edited file is another encoding under the same name.
    """
    own = _version(config.get("kind")) if isinstance(config, Mapping) else {}
    values = config.values() if isinstance(config, Mapping) else config
    inner = values if isinstance(values, Iterable) and not isinstance(values, str) else ()
    return own | {name: digest for value in inner for name, digest in versions_in(value).items()}


def require_versions(versions: Mapping[str, str]) -> None:
    """Refuse encodings from files that have not been run, or have been edited since.

    Raises:
        ConfigError: One line, with the way out.
    """
    for name, digest in versions.items():
        known = _version(name).get(name)
        if known is None:
            raise ConfigError(
                f"encoding {name!r} comes from a file, and none is run unasked; name it again, "
                "as path/to/file.py:ClassName, or through `load_encoding` in Python."
            )
        if known != digest:
            raise ConfigError(
                f"the file of encoding {name!r} has been edited: it is {known}, and the run was made by "
                f"{digest}; train anew, or go back to that file."
            )


def _version(kind: Any) -> dict[str, str]:
    cls = ENCODINGS[kind] if isinstance(kind, str) and kind in ENCODINGS else None
    digest = None if cls is None else _digests.get(cls.__module__)
    return {} if digest is None else {kind: digest}


def laws_of(name: str, sizes: Sizes | None = None) -> list[LawCheck]:
    """Every law tried on a registered encoding with its default configuration, in a model of these sizes."""
    sizes = sizes or Sizes()
    return check_laws(ENCODINGS.config(name)().fitted(**asdict(sizes)).build(), sizes)
