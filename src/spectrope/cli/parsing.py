"""Parse arguments into a command; errors are reported in one line, based on the command's help."""

import contextlib
import io
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import dropwhile, takewhile
from typing import Any

import tyro

from spectrope.cli.catalogue import Command
from spectrope.cli.help import Option, Page, page_of
from spectrope.core import SpectropeError

KINDS = {"N": "a whole number", "X": "a number"}  # What help calls the value of an option, in words.
OPTION = re.compile(r"--[\w-]+")
NO_INTEGER = re.compile(r"invalid literal for int\(\) with base 10: ('.*?')")
CHOICES = re.compile(r"Expected one of \((.*?),?\)")


class UsageError(SpectropeError):
    """The command line cannot be read."""


def parse(command: Command, arguments: Sequence[str]) -> Any:
    """Parse the arguments after a command's name into its dataclass.

    Raises:
        UsageError: If they are invalid, with the option, the expected value and the given one.
    """
    printed = io.StringIO()
    try:
        with contextlib.redirect_stderr(printed):
            filled = tyro.cli(
                command.load(),
                prog=f"spectrope {command.name}",
                args=list(arguments),
                config=(tyro.conf.OmitArgPrefixes, tyro.conf.FlagCreatePairsOff),
            )
    except SystemExit:
        page, typed = page_of(command, arguments)
        raise UsageError(_Complaint(page, typed, arguments, _flat(printed.getvalue())).line()) from None
    sys.stderr.write(printed.getvalue())
    return filled


def _flat(box: str) -> str:
    """The text of a message in one line, without its frame, up to the first rule."""
    title, *lines = box.splitlines()
    inner = dropwhile(_is_rule, (line.strip().strip("│|").strip() for line in lines))
    return " ".join([title.strip("╭╮─+- "), *takewhile(lambda line: not _is_rule(line), inner)])


def _is_rule(line: str) -> bool:
    return bool(line) and not re.search(r"\w", line)


@dataclass(frozen=True)
class _Complaint:
    """An error in a command line.

    Args:
        page: Help of the command or action.
        typed: The command, such as `spectrope claims run`.
        arguments: The arguments after the command.
        text: Message of the parser, in one line.
    """

    page: Page
    typed: str
    arguments: Sequence[str]
    text: str

    def line(self) -> str:
        """One-line message: the option, what is expected, what was typed, and how to correct it."""
        values = self._bad_value, self._bad_number
        kinds = (self._action, self._unknown_option, *values, self._missing, self._stray)
        told = next((line for kind in kinds if (line := kind())), f"{self._name}: {self.text}")
        return f"{told}{'' if told.endswith('?') else '.'} See `{self.typed} --help`."

    @property
    def _name(self) -> str:
        return self.typed.removeprefix("spectrope ")

    def _action(self) -> str:
        """An action that is missing or unknown."""
        if not self.page.actions:
            return ""
        words = [word for word in self.arguments if not word.startswith("-")]
        got = f"; got {words[0]!r}" if words else ""
        return f"{self._name} is followed by one of {', '.join(self.page.actions)}{got}"

    def _unknown_option(self) -> str:
        names = [option.name for option in self.page.options if not option.positional]
        unknown = (word.partition("=")[0] for word in self.arguments if OPTION.match(word))
        wrong = next((word for word in unknown if word.replace("_", "-") not in names), None)
        if wrong is None:
            return ""
        near = get_close_matches(wrong, names, n=1)
        return f"{self._name} has no option {wrong}" + (f"; did you mean {near[0]}?" if near else "")

    def _bad_value(self) -> str:
        """An option that the parser names, with a value that is missing or cannot be read."""
        name = next(iter(OPTION.findall(self.text)), None)
        option = next((one for one in self.page.options if one.name == name), None)
        if option is None or not option.value:
            return ""
        values = " ".join(map(repr, _values(option.name, self.arguments))) or "nothing"
        return f"{self._name} {option.name} takes {self._expected(option)}; got {values}"

    def _bad_number(self) -> str:
        """A positional argument that is no whole number."""
        given = NO_INTEGER.search(self.text)
        place = next((option for option in self.page.options if option.positional), None)
        if given is None or place is None:
            return ""
        return f"{self._name} takes a whole number as {place.name}; got {given[1]}"

    def _expected(self, option: Option) -> str:
        """What an option takes, in words."""
        if choices := CHOICES.search(self.text):
            return f"one of {choices[1].replace(chr(39), '')}"
        return KINDS.get(option.value, option.value)

    def _missing(self) -> str:
        """A positional argument that is not there."""
        if not self.text.startswith("Required"):
            return ""
        missing = [option for option in self.page.options if option.required and option.text in self.text]
        return f"{self._name} needs {missing[0].name}: {missing[0].text.rstrip('.')}" if missing else ""

    def _stray(self) -> str:
        words = self.text.rpartition("Unrecognized options: ")[2]
        return "" if words == self.text else f"{self._name} takes no further argument; got {words}"


def _values(name: str, arguments: Sequence[str]) -> list[str]:
    """What was typed for an option, the last time that it was."""
    for place in reversed(range(len(arguments))):
        word, equals, value = arguments[place].partition("=")
        if word.replace("_", "-") == name:
            after = arguments[place + 1 :]
            end = next((k for k, one in enumerate(after) if OPTION.match(one)), len(after))
            return [value] if equals else list(after[:end])
    return []
