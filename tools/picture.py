"""Draw the rooms of the package, floor by floor, from the import contract in pyproject.toml.

    python tools/picture.py [--out docs/images/house.svg]

A room may import what lies below it and nothing above; rooms on one floor do not import each other. What a
room is for is the first line of its docstring. A test holds the committed picture to this program.
"""

import argparse
import ast
import textwrap
import tomllib
from html import escape
from pathlib import Path

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "images" / "house.svg"
PROGRAM = {"cli", "front"}
APPLICATIONS = {"study", "checkpoints", "grokking", "fast", "conformance", "verify"}
WIDTH, MARGIN, FLOOR, GAP = 880, 20, 52, 8
LETTER = 0.46  # Mean width of a letter of Helvetica, as a share of its size.
FILLS = {"program": "#f3e9d8", "application": "#e3edf7", "library": "#eef2ea"}


def floors(pyproject: Path = ROOT / "pyproject.toml") -> list[list[str]]:
    """The rooms of each floor, from the top down."""
    contracts = tomllib.loads(pyproject.read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    (layers,) = (contract["layers"] for contract in contracts if contract["type"] == "layers")
    return [[room.strip() for room in layer.split("|")] for layer in layers]


def purpose(room: str) -> str:
    """What a room is for: the first line of its docstring, without the marks of code."""
    text = (ROOT / "src" / "spectrope" / room / "__init__.py").read_text(encoding="utf-8")
    return (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0].rstrip(".").replace("`", "")


def kind(room: str) -> str:
    """Whether a room is the program, an application, or part of the library."""
    return "program" if room in PROGRAM else "application" if room in APPLICATIONS else "library"


def drawn(house: list[list[str]]) -> str:
    """The picture as SVG."""
    height = 2 * MARGIN + len(house) * (FLOOR + GAP) + 24
    boxes = [box for number, rooms in enumerate(house) for box in _floor(number, rooms)]
    legend = "A room imports what lies below it, and nothing above. "
    legend += "Blue: the six applications, of which the library below knows nothing."
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
            'font-family="Helvetica, Arial, sans-serif" role="img">',
            f"<title>The rooms of spectrope. {legend}</title>",
            f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
            *boxes,
            f'<text x="{MARGIN}" y="{height - MARGIN}" font-size="12" fill="#444">{escape(legend)}</text>',
            "</svg>\n",
        )
    )


def _floor(number: int, rooms: list[str]) -> list[str]:
    width = (WIDTH - 2 * MARGIN - (len(rooms) - 1) * GAP) / len(rooms)
    y = MARGIN + number * (FLOOR + GAP)
    lines = []
    for place, room in enumerate(rooms):
        x = MARGIN + place * (width + GAP)
        lines.append(
            f'<rect x="{x:g}" y="{y}" width="{width:g}" height="{FLOOR}" rx="4" fill="{FILLS[kind(room)]}" '
            'stroke="#888"/>'
        )
        lines.append(f'<text x="{x + 10:g}" y="{y + 19}" font-size="14" font-weight="bold">{room}/</text>')
        lines += [
            f'<text x="{x + 10:g}" y="{y + 34 + 11 * row}" font-size="{size}" fill="#333">'
            f"{escape(text)}</text>"
            for row, (text, size) in enumerate(_wrapped(purpose(room), width - 20))
        ]
    return lines


def _wrapped(text: str, width: float) -> list[tuple[str, int]]:
    """The lines of a text and their size: one if it fits into the width of a box, or else smaller ones."""
    if len(text) * 12 * LETTER <= width:
        return [(text, 12)]
    return [(line, 10) for line in textwrap.wrap(text, int(width / (10 * LETTER)))]


def main() -> None:
    """Write the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, default=PICTURE)
    parser.parse_args().out.write_text(drawn(floors()), encoding="utf-8")


if __name__ == "__main__":
    main()
