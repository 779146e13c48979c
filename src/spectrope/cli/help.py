"""Help of the commands, stored in one file, so that printing it does not import commands.

`python -m tools.help` writes the file from the dataclasses of the commands; a test verifies that they agree.
"""

import inspect
import json
import textwrap
from collections.abc import Sequence
from dataclasses import MISSING, Field, dataclass, fields
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from spectrope.cli.catalogue import PLUG_INS, Command, commands
from spectrope.console.rare import RARE

FILE = Path(__file__).with_name("help.json")
WIDTH = 80
COLUMN = 24  # Where the text of an option begins at the latest.
EVERYWHERE = "All commands also accept --quiet, --verbose and --version."
METAVARS = {int: "N", float: "X", Path: "PATH", str: "NAME"}


@dataclass(frozen=True)
class Option:
    """An option or a positional argument.

    Args:
        name: Name, such as `--seeds` or `RUN`.
        value: Placeholder for its value, such as `N ...`; empty for a switch.
        text: Description.
        default: Default value; empty if the description states it.
        rare: Whether only `--help-all` shows it.
        required: Whether it has no default.
    """

    name: str
    value: str
    text: str
    default: str
    rare: bool
    required: bool = False

    @property
    def positional(self) -> bool:
        """Whether it is typed without a name."""
        return not self.name.startswith("-")

    @property
    def head(self) -> str:
        """Its name and what follows it."""
        return f"{self.name} {self.value}".rstrip()

    @property
    def place(self) -> str:
        """A positional argument as the line of usage has it."""
        return self.head if self.required else f"[{self.head}]"

    def lines(self, column: int, width: int) -> list[str]:
        """Its paragraph of help."""
        head = f"  {self.head}"
        text = f"{self.text} [{self.default}]" if self.default else self.text
        wrapped = textwrap.wrap(text, width - column) or [""]
        if len(head) > column - 2:
            return [head, *(" " * column + line for line in wrapped)]
        return [head.ljust(column) + wrapped[0], *(" " * column + line for line in wrapped[1:])]


@dataclass(frozen=True)
class Page:
    """The help of a command, or of one of its actions.

    Args:
        summary: One-line description.
        examples: Example command lines.
        options: Options in the order of the help.
        actions: Pages of actions by name; a command with actions has no options of its own.
    """

    summary: str
    examples: tuple[str, ...]
    options: tuple[Option, ...]
    actions: dict[str, "Page"]

    @classmethod
    def of(cls, command: type) -> "Page":
        """The page of a command's dataclass."""
        doc = inspect.getdoc(command) or ""
        typed = (line.strip() for line in doc.partition("\nExamples:\n")[2].splitlines())
        examples = tuple(line.removeprefix("$ ") for line in typed if line.startswith("$ "))
        hints = get_type_hints(command, include_extras=True)
        if "action" in hints:
            actions = {one.__metadata__[0].name: cls.of(one.__origin__) for one in get_args(hints["action"])}
            return cls(doc.partition("\n")[0], examples, (), actions)
        own = vars(command).get("__annotations__", {})  # Before those that it shares with other commands.
        ordered = sorted(fields(command), key=lambda field: field.name not in own)
        options = tuple(_option(field, hints[field.name]) for field in ordered)
        first = sorted(options, key=lambda option: not option.positional)
        return cls(doc.partition("\n")[0], examples, tuple(first), {})

    @classmethod
    def read(cls, record: dict[str, Any]) -> "Page":
        """The page of a record of the file."""
        options = tuple(Option(**one) for one in record["options"])
        actions = {name: cls.read(one) for name, one in record["actions"].items()}
        return cls(record["summary"], tuple(record["examples"]), options, actions)

    def text(self, typed: str, *, everything: bool) -> str:
        """The page as it is printed.

        Args:
            typed: The command and its action, such as `spectrope claims run`.
            everything: Whether rare options are shown as well.
        """
        shown = [option for option in self.options if everything or not option.rare]
        usage = textwrap.fill(self.usage(typed), WIDTH, subsequent_indent="       ", break_on_hyphens=False)
        parts = [usage, textwrap.fill(self.summary, WIDTH)]
        if self.actions:
            named = [Option(name, "", page.summary, "", False) for name, page in self.actions.items()]
            parts.append(_listed(named))
        parts += [_listed(shown)] if shown else []
        if self.examples:
            parts.append("\n".join(f"  $ {example}" for example in self.examples))
        if hidden := len(self.options) - len(shown):
            parts.append(f"`{typed} --help-all` shows {hidden} more option{'s' if hidden > 1 else ''}.")
        elif shown:
            parts.append(EVERYWHERE)
        return "\n\n".join(parts)

    def usage(self, typed: str) -> str:
        """The line that says what is typed."""
        if self.actions:
            return f"usage: {typed} {{{','.join(self.actions)}}} [OPTIONS]"
        places = [one.place for one in self.options if one.positional]
        return " ".join(["usage:", typed, *places, "[OPTIONS]"])


def _listed(options: Sequence[Option]) -> str:
    heads = (4 + len(option.head) for option in options)
    column = max(head for head in (0, *heads) if head <= COLUMN)
    return "\n".join(line for option in options for line in option.lines(column, WIDTH))


def _option(field: Field[Any], hint: Any) -> Option:
    """An option of a command's dataclass, from its annotation for tyro."""
    notes = getattr(hint, "__metadata__", ())
    kind = hint.__origin__ if notes else hint
    given = next(note for note in notes if hasattr(note, "help"))
    name = (given.name or field.name).replace("_", "-")
    positional = any(str(note) == "Positional" for note in notes)
    return Option(
        name=name.upper() if positional else f"--{name}",
        value=("..." if get_origin(kind) is tuple else "") if positional else given.metavar or _value(kind),
        text=given.help,
        default=_default(field.default),
        rare=RARE in notes,
        required=field.default is MISSING,
    )


def _value(kind: Any) -> str:
    """What follows an option of a type."""
    if get_origin(kind) in (Union, UnionType):
        return _value(next(one for one in get_args(kind) if one is not NoneType))
    if get_origin(kind) is tuple:
        return f"{_value(get_args(kind)[0])} ..."
    if get_origin(kind) is Literal:
        return "{" + ",".join(map(str, get_args(kind))) + "}"
    return METAVARS.get(kind, "")


def _default(value: object) -> str:
    if value is MISSING or value is None or value is False or value == ():
        return ""
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


ASKED = {"-h": False, "--help": False, "--help-all": True}


def asked(arguments: Sequence[str]) -> bool | None:
    """Whether arguments ask for all of a command's help (True), for the usual part (False), or for none."""
    before = arguments[: arguments.index("--")] if "--" in arguments else arguments
    wishes = [ASKED[word] for word in before if word in ASKED]
    return any(wishes) if wishes else None


def help_of(command: Command, arguments: Sequence[str], *, everything: bool) -> str:
    """The help of a command, or of the action that its arguments name first.

    Args:
        command: Whose.
        arguments: What was typed after it.
        everything: Whether rare options are shown as well.
    """
    page, typed = page_of(command, arguments)
    return page.text(typed, everything=everything)


def page_of(command: Command, arguments: Sequence[str]) -> tuple[Page, str]:
    """The page of a command, or of the action that its arguments name first, and what is typed for it."""
    known = json.loads(FILE.read_text(encoding="utf-8"))
    page = Page.read(known[command.name]) if command.name in known else Page.of(command.load())
    typed = f"spectrope {command.name}"
    if arguments and arguments[0] in page.actions:
        return page.actions[arguments[0]], f"{typed} {arguments[0]}"
    return page, typed


def pages() -> dict[str, Page]:
    """The pages of all commands of this package, from their dataclasses."""
    return {name: Page.of(one.load()) for name, one in commands().items() if one.group != PLUG_INS}
