"""What answers a statement of a paper: a claim, an entry of the ledger, a figure, a command, or a reason.

Each kind looks up what it names, and raises a `LookupError` if it is not there, so that the page of
statements cannot name what no longer exists.
"""

import re
import shlex
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from spectrope.cli.help import pages
from spectrope.core import ConfigError, Registry
from spectrope.encodings import ENCODINGS, SCHEDULES, documented
from spectrope.study.claim import CLAIMS
from spectrope.study.page.paper.items import figure_of, table_of
from spectrope.tasks import TASKS

T = TypeVar("T")
MEMBERS = {"encoding": ENCODINGS, "schedule": SCHEDULES, "task": TASKS}
ROOT = Path(__file__).parents[2]
ENTRY = re.compile(r"^(?:## (?P<section>.+)|\*\*(?P<words>[^*]+)\*\*)", re.MULTILINE)
VERDICT = re.compile(r"^- `(\w+)`: \*\*(.+?)\*\*", re.MULTILINE)


@dataclass(frozen=True)
class Found:
    """What the page says of one piece of evidence.

    Args:
        command: What to type; empty where there is nothing to type.
        result: What it gives, in Markdown.
    """

    command: str
    result: str


class Evidence(ABC):
    """One answer to a statement."""

    @abstractmethod
    def found(self) -> Found:
        """Command and result.

        Raises:
            LookupError: If what it names does not exist.
        """


@dataclass(frozen=True)
class Claimed(Evidence):
    """A claim of the study, with its verdicts as the committed replication page has them."""

    kind: str

    def found(self) -> Found:
        claim = CLAIMS[self.kind]
        words = verdicts()[self.kind]
        told = "; ".join(f"{word} under {' and '.join(names)}" for word, names in words.items())
        link = f"[claim {claim.number}](../explanation/replication/{self.kind}.md)"
        return Found(f"spectrope claims run {self.kind}", f"{link}, at scale `mini`: {told}")


@dataclass(frozen=True)
class InLedger(Evidence):
    """An entry of the ledger, which begins with these words; its section is the result."""

    begins: str

    def found(self) -> Found:
        sections = [section for words, section in ledger() if words.startswith(self.begins)]
        if not sections:
            raise LookupError(f"the ledger has no entry {self.begins!r}.")
        told = dict.fromkeys(section[0].lower() + section[1:] for section in sections)
        return Found("", f"[ledger](../explanation/ledger.md), with code that runs: {'; '.join(told)}")


@dataclass(frozen=True)
class Drawn(Evidence):
    """A figure of the first paper by its number."""

    number: int

    def found(self) -> Found:
        figure = _known(figure_of, self.number)
        return _shown("figure", self.number, figure.title, figure.reason)


@dataclass(frozen=True)
class Tabled(Evidence):
    """A table of the first paper by its number."""

    number: int

    def found(self) -> Found:
        table = _known(table_of, self.number)
        return _shown("table", self.number, table.title, table.reason)


@dataclass(frozen=True)
class Member(Evidence):
    """A member of a registry, by the first sentence of its documentation.

    Args:
        registry: The registry.
        name: Its name there.
        command: A command that uses it.
    """

    registry: Registry[Any]
    name: str
    command: str

    def found(self) -> Found:
        _require_command(self.command)
        first = documented(self.registry[self.name].__doc__)["summary"]
        return Found(self.command, f"{self.registry.what} `{self.name}`: {first.removesuffix(':')}")


@dataclass(frozen=True)
class Command(Evidence):
    """A command, what it gives, and the tests that hold it.

    Args:
        command: What to type.
        result: What it gives.
        tests: Tests as `file::function`, in the folder of tests.
    """

    command: str
    result: str
    tests: Sequence[str] = ()

    def found(self) -> Found:
        _require_command(self.command)
        for test in self.tests:
            _require_test(test)
        return Found(self.command, self.result)


@dataclass(frozen=True)
class HeldByTests(Evidence):
    """A statement that tests hold, without a command of its own."""

    result: str
    tests: Sequence[str]

    def found(self) -> Found:
        for test in self.tests:
            _require_test(test)
        return Found("", f"{self.result} (test `{self.tests[0]}`)")


@dataclass(frozen=True)
class Missing(Evidence):
    """Nothing answers the statement, and why."""

    reason: str

    def found(self) -> Found:
        return Found("", f"Not here: {self.reason}")


def read_evidence(fields: Mapping[str, Any]) -> Evidence:
    """The evidence that a table of `statements.toml` describes.

    Raises:
        LookupError: If it is of no kind.
    """
    for kind, registry in MEMBERS.items():
        if kind in fields:
            return Member(registry, fields[kind], fields["command"])
    if "result" in fields:
        return Command(fields["command"], fields["result"], fields.get("tests", ()))
    if "tested" in fields:
        return HeldByTests(fields["tested"], fields["tests"])
    kinds = {"claim": Claimed, "ledger": InLedger, "figure": Drawn, "table": Tabled, "missing": Missing}
    for kind, one in kinds.items():
        if kind in fields:
            return one(fields[kind])
    raise LookupError(f"no kind of evidence in {dict(fields)}.")


@cache
def ledger() -> list[tuple[str, str]]:
    """The statements of the ledger and the sections that they are in."""
    section, entries = "", []
    for match in ENTRY.finditer((ROOT / "docs/explanation/ledger.md").read_text(encoding="utf-8")):
        section = match["section"] or section
        if match["words"]:
            entries.append((match["words"], section))
    return entries


@cache
def verdicts() -> dict[str, dict[str, list[str]]]:
    """Of each claim on the committed replication page, the conditions by the word of the verdict."""
    text = (ROOT / "docs/explanation/replication.md").read_text(encoding="utf-8")
    claims: dict[str, dict[str, list[str]]] = {}
    for section in text.split('<a id="')[1:]:
        words: dict[str, list[str]] = {}
        for condition, word in VERDICT.findall(section):
            words.setdefault(word, []).append(f"`{condition}`")
        claims[section.partition('"')[0]] = words
    return claims


def _known(of: Callable[[int], T], number: int) -> T:
    """A figure or a table by its number.

    Raises:
        LookupError: If there is none.
    """
    try:
        return of(number)
    except ConfigError as error:
        raise LookupError(str(error)) from None


def _shown(kind: str, number: int, title: str, reason: str) -> Found:
    if reason:
        return Found("", f"Nothing to show: {reason}")
    return Found(f"spectrope paper {kind} {number}", f"{title}, from stored results")


def _require_command(command: str) -> None:
    """Require that a command and its options, or a module of `tools`, exist.

    Raises:
        LookupError: If one does not.
    """
    program, *words = shlex.split(command)
    if program == "python":
        if not (ROOT / f"{words[1].replace('.', '/')}.py").exists():
            raise LookupError(f"no module {words[1]!r} for {command!r}.")
        return
    page = pages().get(words[0])
    if page is not None and page.actions:
        page = page.actions.get(words[1])
    if page is None:
        raise LookupError(f"no command {command!r}.")
    unknown = {word for word in words if word.startswith("--")} - {one.name for one in page.options}
    if unknown:
        raise LookupError(f"no option {sorted(unknown)[0]} for {command!r}.")


def _require_test(test: str) -> None:
    """Require that a test exists.

    Raises:
        LookupError: If its file has no such function.
    """
    file, _, name = test.partition("::")
    path = ROOT / "tests" / file
    if not path.exists() or f"def {name.rpartition('::')[2]}(" not in path.read_text(encoding="utf-8"):
        raise LookupError(f"no test {test}.")
