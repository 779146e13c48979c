"""A type has one meaning: no two rooms give different things the same name."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import spectrope

PACKAGE = Path(spectrope.__file__).parent


def test_no_type_name_is_used_for_two_things():
    places: dict[str, list[str]] = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        for name in _types(ast.parse(path.read_text("utf-8"))):
            if not _is_command(path, name):
                places[name].append(path.relative_to(PACKAGE).as_posix())
    assert not {name: where for name, where in places.items() if len(where) > 1}


def _types(module: ast.Module) -> Iterator[str]:
    """Names of the classes and type aliases at the top level of a module; of private ones, none."""
    for node in module.body:
        match node:
            case ast.ClassDef(name=name) if name[0] != "_":
                yield name
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if name[0].isupper():
                if not name.isupper() and not _makes_a_variable(value):
                    yield name


def _makes_a_variable(value: ast.expr) -> bool:
    """Whether it is `TypeVar("T")`: rooms may share the letters."""
    return isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "TypeVar"


def _is_command(path: Path, name: str) -> bool:
    """Whether the class is the command that its file is called after, typed and not imported."""
    return path.parent.name == "commands" and name == path.stem.title().replace("_", "")
