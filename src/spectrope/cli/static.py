"""Read the members of a registry from source files, without importing them or torch."""

import ast
import warnings
from collections.abc import Iterator
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from spectrope.core import SpectropeWarning, owner_of


def members(package: str) -> dict[str, str]:
    """The docstrings of the classes that the modules of a package register, by name.

    A class registers itself where it is declared, as in `class ALiBi(LagBias, name="alibi")`. Modules that
    entry points of the group called like the package name are read as well.

    Args:
        package: Dotted name of a package whose registry is called like it.
    """
    spec = find_spec(package)
    assert spec is not None
    files = [file for folder in spec.submodule_search_locations or () for file in Path(folder).glob("*.py")]
    for point in entry_points(group=package):
        file = file_of(point)
        files += [] if file is None else [file]
    return dict(sorted(entry for file in files for entry in _registered(file)))


def file_of(point: Any) -> Path | None:
    """The file of the module that an entry point names; None, with a warning, if it cannot be read.

    Args:
        point: Of `importlib.metadata` or of its backport.
    """
    try:
        spec = find_spec(point.module)
        if spec is not None and spec.origin is not None:
            ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
            return Path(spec.origin)
    except (ImportError, OSError, SyntaxError, ValueError):  # Also of a package around it.
        pass
    text = f"{point.value}, a plug-in of {owner_of(point)}, cannot be read; what it adds is missing."
    warnings.warn(text, SpectropeWarning, stacklevel=2)
    return None


def _registered(file: Path) -> Iterator[tuple[str, str]]:
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef):
            for keyword in node.keywords:
                if keyword.arg == "name" and isinstance(keyword.value, ast.Constant):
                    yield str(keyword.value.value), ast.get_docstring(node) or ""
