"""Lists of what commands take by name, read from source files without loading torch."""

from collections.abc import Mapping

from spectrope.cli.static import members
from spectrope.console import say
from spectrope.encodings import documented


def shown_members(titles: Mapping[str, str]) -> list[dict[str, str]]:
    """Print a line for each member of some packages, and return what the lines say.

    Args:
        titles: The heading of each package by its dotted name.
    """
    found = {package: members(package) for package in titles}
    width = max(len(name) for docs in found.values() for name in docs)
    entries = []
    for package, title in titles.items():
        say(title)
        for name, doc in found[package].items():
            summary = without_stop(documented(doc)["summary"].partition(":")[0])
            show_entry(name, summary, width)
            entries.append({"part": package.rpartition(".")[2], "name": name, "summary": summary})
        say("")
    return entries


def show_entry(name: str, summary: str, width: int) -> None:
    """Print one line of a list."""
    say(f"  {name:<{width}}  {summary}")


def without_stop(sentence: str) -> str:
    """A sentence without its full stop; an ellipsis stays."""
    return sentence if sentence.endswith("...") else sentence.removesuffix(".")
