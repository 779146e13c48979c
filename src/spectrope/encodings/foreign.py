"""Encodings from a user's own file, named as `path/to/file.py:ClassName`."""

import importlib.util
import sys
from dataclasses import asdict
from pathlib import Path

from spectrope.core.errors import ConfigError
from spectrope.encodings.base import ENCODINGS, Encoding
from spectrope.encodings.laws import LawCheck, Sizes, check_laws

_loaded: dict[Path, str] = {}


def is_foreign(spec: str) -> bool:
    """Whether `spec` names a class in a file rather than a registered encoding."""
    return ".py:" in spec


def load_encoding(spec: str) -> str:
    """Run the file that `spec` names, which registers its encodings, and return the class's registered name.

    Raises:
        ConfigError: One line, if the file cannot be run or the class is no registered encoding.
    """
    file, _, name = spec.rpartition(":")
    module = sys.modules[load_file(Path(file))]
    cls = getattr(module, name, None)
    if not (isinstance(cls, type) and issubclass(cls, Encoding)):
        raise ConfigError(f"{file} has no class {name!r} that derives from Encoding.")
    kind = getattr(cls.Config, "kind", None)
    if kind is None or ENCODINGS[kind] is not cls:
        raise ConfigError(f'{spec} is not registered; declare it as `class {name}(Encoding, name="...")`.')
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
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise ConfigError(f"{path} cannot be run: {type(error).__name__}: {error}.") from error
    _loaded[path] = name
    return name


def loaded_files() -> tuple[Path, ...]:
    """The files run so far; a worker process runs them too."""
    return tuple(_loaded)


def laws_of(name: str) -> list[LawCheck]:
    """Every law tried on a registered encoding with its default configuration, in a small model."""
    sizes = Sizes()
    return check_laws(ENCODINGS.config(name)().fitted(**asdict(sizes)).build(), sizes)
