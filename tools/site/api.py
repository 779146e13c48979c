"""Reference of the library: a page per room, of the names in its `__all__`."""

import importlib
import inspect
from collections.abc import Sequence
from types import GenericAlias, ModuleType
from typing import Any

from spectrope.core import Registry

ROOMS = (
    "encodings",
    "attention",
    "tasks",
    "models",
    "lab",
    "spectral",
    "stats",
    "store",
    "figures",
    "checkpoints",
    "fast",
    "grokking",
    "console",
    "core",
)


def pages() -> dict[str, str]:
    """Pages in reStructuredText, by their path without suffix."""
    rooms = {name: importlib.import_module(f"spectrope.{name}") for name in ROOMS}
    written = {f"reference/api/{name}": _room(room, rooms) for name, room in rooms.items()}
    return {"reference/api/index": _index(rooms), "reference/api/spectrope": _front(rooms), **written}


def _index(rooms: dict[str, ModuleType]) -> str:
    first = {
        name: (room.__doc__ or "").partition("\n\n")[0].replace("\n", " ") for name, room in rooms.items()
    }
    listed = "\n".join(f"* - :doc:`spectrope.{name} <{name}>`\n  - {line}" for name, line in first.items())
    return "\n".join(
        (
            _title("Python API"),
            "`import spectrope as sp` offers what most work needs; the rooms behind it hold the rest. Layers "
            "and heads count from 0. Signatures and texts are those of the code.\n",
            ".. toctree::\n   :hidden:\n",
            *(f"   {name}" for name in ("spectrope", *rooms)),
            "\n.. list-table::\n   :header-rows: 1\n   :widths: 25 75\n",
            _indented("* - room\n  - what it holds"),
            _indented("* - :doc:`spectrope <spectrope>`\n  - What `import spectrope` offers."),
            _indented(listed),
        )
    )


def _front(rooms: dict[str, ModuleType]) -> str:
    """The front door: its own names here, the others with the room that they come from."""
    front = importlib.import_module("spectrope")
    homes = {name: _home(getattr(front, name), name, rooms) for name in front.__all__}
    borrowed = "\n".join(
        f"- `{name}`: see :doc:`spectrope.{room} <{room}>`" for name, room in homes.items() if room
    )
    own = [
        name for name, room in homes.items() if not room and not isinstance(getattr(front, name), ModuleType)
    ]
    return "\n".join(
        (
            _title("spectrope"),
            f"{inspect.getdoc(front)}\n",
            f"Names that it takes from rooms:\n\n{borrowed}\n",
            *_entries("spectrope", front, own),
        )
    )


def _home(thing: Any, name: str, rooms: dict[str, ModuleType]) -> str:
    """The room on whose page a thing is described; empty where it is on no room's."""
    holding = [room for room, module in rooms.items() if getattr(module, name, None) is thing]
    own = [room for room in holding if getattr(thing, "__module__", "").startswith(f"spectrope.{room}.")]
    return next(iter(own or holding), "")


def _room(room: ModuleType, rooms: dict[str, ModuleType]) -> str:
    own = room.__name__.removeprefix("spectrope.")
    names = [name for name in room.__all__ if _home(getattr(room, name), name, rooms) == own]
    head = (_title(room.__name__), f".. automodule:: {room.__name__}\n   :no-members:\n   :no-index:\n")
    return "\n".join((*head, *_entries(room.__name__, room, names)))


def _entries(module: str, room: ModuleType, names: Sequence[str]) -> list[str]:
    kinds: dict[str, list[str]] = {"Functions": [], "Classes": [], "Values": []}
    for name in names:
        kinds[_kind(getattr(room, name))].append(name)
    lines: list[str] = []
    for kind, members in kinds.items():
        if members:
            lines += [
                _title(kind, "-"),
                *(_entry(module, name, getattr(room, name)) for name in sorted(members)),
            ]
    return lines


def _kind(thing: Any) -> str:
    if isinstance(thing, type) and not isinstance(thing, GenericAlias):
        return "Classes"
    return "Functions" if inspect.isroutine(thing) else "Values"


def _entry(module: str, name: str, thing: Any) -> str:
    full = f"{module}.{name}"
    if _kind(thing) == "Classes":
        return f".. autoclass:: {full}\n   :members:\n   :show-inheritance:\n"
    if _kind(thing) == "Functions":
        return f".. autofunction:: {full}\n"
    return f".. py:data:: {full}\n   :type: {type(thing).__name__}\n\n   {_value(thing)}\n"


def _value(thing: Any) -> str:
    """What a constant holds, where it fits on a line."""
    if isinstance(thing, Registry):
        return "Registered: " + ", ".join(f"``{name}``" for name in thing) + "."
    shown = repr(thing)
    return f"``{shown}``" if len(shown) < 200 and "`" not in shown and "\n" not in shown else ""


def _title(text: str, line: str = "=") -> str:
    return f"{text}\n{line * len(text)}\n"


def _indented(text: str) -> str:
    return "\n".join(f"   {line}" for line in text.splitlines())
