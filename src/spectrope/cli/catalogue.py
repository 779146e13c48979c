"""The commands of the program, found by their files; the module of a command is imported when it runs.

A command is a file `commands/NAME.py` in `cli` or in an application. It defines a dataclass with the
command's name in camel case, which a record may have too (`Audit`), since only the program imports a
command's class. The first line of its docstring is the summary in the help. A module that
sets `LISTED = False` is listed by `spectrope --help-all` only. Another package can add a command by an entry
point of that name in the group `spectrope.cli.commands`, which refers to such a module.
"""

import ast
import importlib
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from spectrope.cli.static import file_of
from spectrope.core import UnknownNameError

ROOMS = {  # Folders of commands, and what help calls them.
    "cli": "Train and measure",
    "checkpoints": "Checkpoints",
    "conformance": "Checkpoints",
    "fast": "Attention in linear time",
    "grokking": "Grokking, and claims of the papers",
    "study": "Grokking, and claims of the papers",
}
PLUG_INS = "Plug-ins"
PACKAGE = Path(__file__).parents[1]


@dataclass(frozen=True)
class Command:
    """A command that has not been imported.

    Args:
        name: What the user types.
        group: Heading under which help lists it.
        file: Its module's file.
        module: Its module's dotted name.
    """

    name: str
    group: str
    file: Path
    module: str

    @property
    def class_name(self) -> str:
        """Name of its dataclass."""
        return "".join(part.capitalize() for part in self.name.split("-"))

    @property
    def line(self) -> str:
        """Summary for the list of commands, read from the file without executing it."""
        classes = (
            node for node in self._body() if isinstance(node, ast.ClassDef) and node.name == self.class_name
        )
        return (ast.get_docstring(next(classes)) or "").partition("\n")[0]

    @property
    def listed(self) -> bool:
        """Whether `spectrope --help` lists it; `spectrope --help-all` lists every command."""
        return "LISTED = False" not in map(ast.unparse, self._body())

    def _body(self) -> list[ast.stmt]:
        return ast.parse(self.file.read_text(encoding="utf-8")).body

    def load(self) -> Any:
        """Its dataclass."""
        return getattr(importlib.import_module(self.module), self.class_name)


@cache
def commands() -> dict[str, Command]:
    """All commands by name, in the order of help."""
    built_in = [
        Command(file.stem.replace("_", "-"), group, file, f"spectrope.{room}.commands.{file.stem}")
        for room, group in ROOMS.items()
        for file in sorted((PACKAGE / room / "commands").glob("[!_]*.py"))
    ]
    others = filter(None, map(_of_plugin, entry_points(group="spectrope.cli.commands")))
    return {command.name: command for command in (*others, *built_in)}


def _of_plugin(point: Any) -> Command | None:
    file = file_of(point)
    return None if file is None else Command(point.name, PLUG_INS, file, point.value)


def command(name: str) -> Command:
    """The command of that name.

    Raises:
        UnknownNameError: If there is none.
    """
    if name not in commands():
        raise UnknownNameError("command", name, commands())
    return commands()[name]
