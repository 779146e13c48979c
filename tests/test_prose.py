"""A prose linter over documents, docstrings and help, and idioms that the project has left behind."""

import ast
import json
import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest
from proselint.checks import __register__
from proselint.config import DEFAULT
from proselint.registry import CheckRegistry
from proselint.tools import LintFile

from spectrope.cli.help import FILE

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
MODULES = sorted((ROOT / "src").rglob("*.py"))

EXCEPTIONS = {  # Checks of proselint that are switched off, and why.
    "typography.symbols": "plain text and code keep ASCII quotes, dots and (R)",
    "typography.diacritical_marks": "takes the verb resume for a résumé",
    "dates_times.dates": "takes version and page numbers for dates",
    "lexical_illusions": "takes a heading and the first word below it for a repetition",
    "spelling.consistency": "learned and learnt are a name and a verb here",
    "misc.illogic": "a majority is more than half of all",
    "redundancy.misc.after_the_deadline": "a number of different words is not a number of words",
    "psychology.p_equals_zero": "takes p = 0.00098 for p = 0",
    "uncomparables": "one arrangement can be more uniform than another",
}
LEFT_BEHIND = {  # Pattern: what to write.
    r"\bwhom\b": "who, or name the callback",
    r"\bnobody (makes|asks|reads)\b": "never, or no one",
    r"\bnot to be had\b|\bto be had\b": "unavailable",
    r"\bsees? the past alone\b": "causal attention",
    r"\bgives? back the memory\b": "retain, or return to the system",
    r"\bbe no prime\b": "a composite modulus",
    r"\btwo looks\b|\blooks at everything\b": "evaluation interval",
    r"\b(one|all) sittings?\b": "resumable training, session",
    r"\bhooks that are always taken back\b": "removed on exit",
    r"\bthat chose nothing\b": "say which",
    r"\bnames of tables tell\b": "recorded in the table's name",
    r"^The same\.$": "say what",
    r"\bListener that shows nothing\b": "no-op callback",
    r"\bof one's own choice\b": "chosen by the user",
    r"\bComplaints of\b": "errors of",
    r"\bthe objection of\b": "the restriction of",
    r"\bbrings? home\b": "return, copy",
    r"\bforth and back\b": "forward and backward",
    r"\bgoofy\b|\bhenceforth\b|\bhereby\b|\bthereof\b|\bwherein\b|\bhitherto\b": "plain words",
}


def page_text(page: Path) -> str:
    """A page without code, tables, directives and the targets of links."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"^(:::|\||<|\$\$).*$", "", text, flags=re.MULTILINE)
    return re.sub(r"\]\([^)]*\)", "]", plain(text))


def docstrings(module: Path) -> Iterator[str]:
    """The docstrings of a module."""
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (
            text := ast.get_docstring(node)
        ):
            yield plain(text)


def plain(text: str) -> str:
    """Words alone: code and formulas become a placeholder."""
    return re.sub(r"(:\w+:)?`[^`]*`|\$[^$\n]+\$", "CODE", text)


def help_texts() -> Iterator[str]:
    """Summaries and texts of options of all commands."""
    pages = json.loads(FILE.read_text(encoding="utf-8"))
    for page in chain(pages.values(), *(page["actions"].values() for page in pages.values())):
        yield page["summary"]
        yield from (option["text"] for option in page["options"])


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    """All prose, by where it stands."""
    quoted = re.compile(r"^> .*$", re.MULTILINE)  # The words of others.
    pages = {str(page.relative_to(ROOT)): quoted.sub("", page_text(page)) for page in PAGES}
    modules = {str(one.relative_to(ROOT)): "\n\n".join(docstrings(one)) for one in MODULES}
    return pages | modules | {"--help": "\n\n".join(help_texts())}


def test_the_linter_finds_nothing(texts):
    CheckRegistry().register_many(__register__)
    config = DEFAULT | {"checks": {**DEFAULT["checks"], **dict.fromkeys(EXCEPTIONS, False)}}
    found = [
        f"{place}:{one.pos[0]}: {one.check_result.check_path}: {one.check_result.message}"
        for place, text in texts.items()
        if text
        for one in LintFile(place, text).lint(config)
        if not one.check_result.check_path.startswith(tuple(EXCEPTIONS))
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("pattern", LEFT_BEHIND)
def test_idioms_are_left_behind(texts, pattern):
    found = [
        f"{place}: {match[0]!r}"
        for place, text in texts.items()
        for match in re.finditer(pattern, text, re.IGNORECASE | re.MULTILINE)
    ]
    assert not found, f"write {LEFT_BEHIND[pattern]} in place of {', '.join(found)}"


def test_no_docstring_is_broken_by_quotes_of_joined_strings():
    broken = [
        f"{path.name}:{node.lineno if isinstance(node, ast.ClassDef | ast.FunctionDef) else 1}"
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and re.search(r'"\s*\n\s*"', ast.get_docstring(node, clean=False) or "")
    ]
    assert broken == []
