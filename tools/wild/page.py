"""The page of the matrix, from what was stored."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

RotaryCell = Mapping[str, Any]
NEAR = 4096  # Positions up to which what has nothing to do with precision is judged.
ORDER = (
    "wrong",
    "fails",
    "float32",
    "exact",
    "not offered",
)  # The worst of some cells is the first of these.
SHORT = {"not offered": "–", "fails": "fails", "exact": "exact", "float32": "float32"}
EXAMPLES = 4  # Of a library, on the page.


def plain(cell: RotaryCell, *apart: str) -> bool:
    """Whether a cell is the usual one in all respects but some."""
    usual = {
        "order": "consecutive",
        "width": 1.0,
        "scaling": "none",
        "sections": "one axis",
        "direction": "forward",
    }
    return all(cell[axis] == value for axis, value in usual.items() if axis not in apart)


def near(cell: RotaryCell) -> bool:
    """Whether precision is no matter."""
    return cell["dtype"] == "float32" and cell["start"] <= NEAR


def of_type(dtype: str, low: int, high: int) -> Callable[[RotaryCell], bool]:
    """Plain cells of a type at some positions."""
    return lambda cell: plain(cell) and cell["dtype"] == dtype and low <= cell["start"] <= high


POSITIONS = {"to 4,143": (0, NEAR), "131,072": (131_072, 131_072), "10⁶": (900_000, 10**6)}
PRECISION = {
    f"{dtype} {words}": of_type(dtype, *ends)
    for dtype in ("float32", "bfloat16", "float16")
    for words, ends in POSITIONS.items()
}
FEATURES: dict[str, Callable[[RotaryCell], bool]] = {
    "halves": lambda c: plain(c) and near(c) and c["layout"] == "halves",
    "interleaved": lambda c: plain(c) and near(c) and c["layout"] == "interleaved",
    "from 4,096 on": lambda c: plain(c) and near(c) and c["start"] == NEAR,
    "jumps": lambda c: plain(c, "order") and near(c) and c["order"] == "scattered",
    "part of the width": lambda c: plain(c, "width") and near(c) and c["width"] < 1,
    **{
        kind: (lambda c, kind=kind: plain(c, "scaling") and near(c) and c["scaling"] == kind)
        for kind in ("linear", "llama3", "yarn")
    },
    "sections": lambda c: plain(c, "sections") and near(c) and c["sections"] == "three axes",
    "gradient": lambda c: plain(c, "direction") and c["direction"] == "backward" and c["start"] <= NEAR,
}


def worst(cells: Iterable[RotaryCell]) -> str:
    """The worst verdict of some cells that are offered, with its largest error."""
    some = list(cells)
    offered = [cell for cell in some if cell["verdict"] != "not offered"] or some
    verdict = min((cell["verdict"] for cell in offered), key=ORDER.index)
    if verdict != "wrong":
        return SHORT[verdict]
    errors = [cell["error"] for cell in offered if cell["verdict"] == "wrong"]
    return "**not finite**" if None in errors else f"**{max(errors):.2g}**"


def columns(cells: Iterable[RotaryCell]) -> dict[str, str]:
    """What a library's row says."""
    some = list(cells)
    return {name: worst(filter(of, some)) for name, of in (PRECISION | FEATURES).items()}


def page(records: list[dict[str, Any]]) -> str:
    """The whole page."""
    dates = sorted(record["date"] for record in records)
    wrong = [record for record in records if record["examples"]]
    parts = [
        HEAD.format(
            n=len(records),
            dates=between(dates[0], dates[-1]),
            torch=records[0]["torch"],
            cells=records[0]["cells"],
        ),
        table(records, tuple(PRECISION)),
        FEATURES_HEAD,
        table(records, tuple(FEATURES)),
        EXAMPLES_HEAD.format(n=len(wrong)),
    ]
    parts += [examples(record) for record in wrong]
    return "\n".join(parts).rstrip() + "\n"


def between(first: str, last: str) -> str:
    """When libraries were measured, in words."""
    return f"on {first}" if first == last else f"from {first} to {last}"


def table(records: list[dict[str, Any]], names: tuple[str, ...]) -> str:
    """A row per library."""
    head = ["library", *names]
    rows = [[f"{r['library']} {r['version']}", *(r["columns"][name] for name in names)] for r in records]
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def examples(record: dict[str, Any]) -> str:
    """The smallest failures of a library."""
    blocks = [f"```py\n{one['code']}\n```\n" for one in record["examples"][:EXAMPLES]]
    rest = len(record["examples"]) - EXAMPLES
    more = f"{rest} more kinds of failing cases are in `tools/wild/results`.\n" if rest > 0 else ""
    return (
        f"### {record['library']} {record['version']}\n\n{record['wrapped']}\n\n" + "\n".join(blocks) + more
    )


HEAD = """# RoPE in the wild

Implementations of rotary embeddings in {n} public libraries, measured {dates} against an oracle in
float64 by `spectrope conform`, each in an environment of its own on a CPU, under torch {torch}.
`python -m tools.wild` installs the libraries, measures them and redraws this page; `tools/wild/adapters` has
the few lines by which each is called. Heads have 64 coordinates and the base is 10000. The suite has {cells}
cases: combinations of type, layout, positions, rotated width, scaling and direction (forward or backward).

Each entry of the tables below gives the worst result of its cases. A case is *exact* if the result differs
from the oracle by at most 4 roundings of its type, and *float32* if it differs by no more than the rounding
of angles in float32 explains, which grows with the position: up to 0.24 radians at position 1,000,000. A
number in bold is the error of a wrong result, as a share of the largest coordinate of the vector; – marks
what a library does not offer through the functions that were called.

## Precision
The rotation of whole heads without scaling, at consecutive positions.
"""
FEATURES_HEAD = """## What is offered
In float32 at positions up to 4,143, so that precision plays no part, except that gradients are in all types.
*Jumps* are positions that repeat and begin again, as in packed sequences; *sections* are positions with three
axes, each of which turns a part of the pairs; *linear*, *llama3* and *yarn* scale frequencies.
"""
EXAMPLES_HEAD = """## Failing cases
{n} libraries have cases with a wrong result or an error. The smallest example of each kind of case
follows, up to 4 for a library; `apply_rope` is the function in the library's adapter, and `torch` is
imported.
"""
