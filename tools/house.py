"""Count how the package is laid out, to repeat the figures before and after a restructuring.

    python tools/house.py [--src PATH] [--journeys] [--json]

`--src` is the folder that holds the package, so that other checkouts can be counted by the same rules. A room
is a subpackage of the package; modules at its top level together make the room "(front)".

Code lines: Physical lines that hold a token other than a comment or a docstring. Docstrings are the first
    statement of a module, class or function, where it is a string; other strings count with all their lines.
    Templates (HTML, CSS, JavaScript, Markdown) have physical lines alone.
Files and their median length: Python files and their physical lines.
Imports: Pairs of modules of which the first imports the second, each pair once. Imports inside functions and
    under TYPE_CHECKING count; those by `importlib` do not. `from package import name` leads to the submodule
    of that name where there is one, else to the package itself. Two rooms are joined if a module of either
    imports one of the other; "(front)", which re-exports names, is counted by itself.
Files to touch: For some members of each kind, the files whose code names the member, its own included, and
    those among them that list it. A file names a member by a string equal to its key or by the name of its
    class. It lists the member by a class statement, an annotated field, a key that is assigned to, or an item
    of a collection, union or `Literal`. What a new member needs lies between both counts: some lists are
    optional, and a member registered by a call is named but not listed. The modules are printed so that a
    reader can judge. A sample that no file names is gone: replace it in `SAMPLES`.
Journeys: The modules in which a journey of a user executes a function body; see `journeys.py`. `--json` has
    their names.
"""

import argparse
import ast
import io
import json
import statistics
import subprocess
import sys
import tempfile
import tokenize
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

PACKAGE, FRONT = "spectrope", "(front)"
TEMPLATES = {".html", ".css", ".js", ".md"}
JOURNEYS = {
    "a": "a configuration through compare",
    "b": "a head through ablation",
    "c": "a checkpoint through audit",
    "d": "a claim from plan to page",
    "e": "q and k through fast attention",
}
# Ordinary members of each kind: the key, and the name of the class where there is one. What the claims study,
# such as ALiBi or the counting task, is also listed wherever a claim compares it.
SAMPLES: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "encoding": (("fire", "FIRE"), ("kerple_log", "KerpleLog"), ("fope", "FoPE")),
    "task": (("addition", "Addition"),),
    "claim": (("partial-rope", "PartialRoPE"), ("extrapolation", "Extrapolation"), ("grok-med", "GrokMed")),
    "quantity": (("stable_rank",), ("factorisation",), ("toeplitz_content",)),
    "figure": (("heatmap", "HeatMap"), ("violin", "Violin"), ("versus", "Versus")),
    "command": (("grok-theory", "GrokTheory"), ("grok-shapes", "GrokShapes"), ("compare", "Compare")),
    "intervention": (("resample",), ("content-only",), ("value-bias",)),
}
LAYOUT = {tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
NOT_CODE = LAYOUT | {tokenize.COMMENT}
DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Module:
    """A Python file of the package."""

    name: str
    room: str
    is_package: bool
    source: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.source)

    @cached_property
    def branches(self) -> list[tuple[ast.AST, ast.AST]]:
        """Every node of the tree but the root, after its parent."""
        found: list[tuple[ast.AST, ast.AST]] = []
        waiting: list[ast.AST] = [self.tree]
        for parent in waiting:
            nodes = list(ast.iter_child_nodes(parent))
            found += ((parent, node) for node in nodes)
            waiting += nodes
        return found

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """All nodes of the tree, in the order of `ast.walk`."""
        return [self.tree, *(node for _, node in self.branches)]

    @cached_property
    def mentions(self) -> dict[tuple[str, str], bool]:
        """What the code names, by a string ("key") or an identifier ("class"), and whether it lists it."""
        found: dict[tuple[str, str], bool] = {}
        for parent, node in self.branches:
            if not isinstance(parent, ast.Expr) and (name := _named(node)):
                listed = isinstance(node, ast.ClassDef | ast.AnnAssign) or _is_list(parent)
                found[name] = found.get(name, False) or listed
        return found

    @cached_property
    def docstrings(self) -> list[ast.Constant]:
        """Those of the module and of its classes and functions."""
        bodies = [node.body[:1] for node in self.nodes if isinstance(node, DOCUMENTED)]
        first = [body[0].value for body in bodies if body and isinstance(body[0], ast.Expr)]
        return [text for text in first if isinstance(text, ast.Constant) and isinstance(text.value, str)]

    @property
    def physical_lines(self) -> int:
        return len(self.source.splitlines())

    @cached_property
    def code_lines(self) -> int:
        """Lines that hold code, by the definition at the head of this file."""
        documented = [_span(text) for text in self.docstrings]
        held: set[int] = set()
        for token in tokenize.generate_tokens(io.StringIO(self.source).readline):
            if token.type in NOT_CODE:
                continue
            is_text = token.type == tokenize.STRING
            if not (is_text and any(start <= token.start < end for start, end in documented)):
                held.update(range(token.start[0], token.end[0] + 1))
        return len(held)


def _span(node: ast.Constant) -> tuple[tuple[int, int], tuple[int, int]]:
    return (node.lineno, node.col_offset), (node.end_lineno or 0, node.end_col_offset or 0)


def _named(node: ast.AST) -> tuple[str, str] | None:
    """What a node names, and how."""
    match node:
        case ast.Constant(value=str(name)) | ast.AnnAssign(target=ast.Name(id=name)):
            return "key", name
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.alias(name=name) | ast.ClassDef(name=name):
            return "class", name
    return None


def _is_list(node: ast.AST) -> bool:
    """Whether what is directly inside a node is one of several, or is assigned by key."""
    match node:
        case ast.Tuple() | ast.List() | ast.Set() | ast.Dict() | ast.BinOp(op=ast.BitOr()):
            return True
        case ast.Subscript(ctx=ast.Store()) | ast.Subscript(value=ast.Name(id="Literal")):
            return True
    return False


def load(src: Path) -> dict[str, Module]:
    """The modules of the package in `src`, by name."""
    paths = sorted(src.glob(f"{PACKAGE}/**/*.py"))
    return {module_name(src, path): _read(src, path) for path in paths}


def _read(src: Path, path: Path) -> Module:
    parts = path.relative_to(src).parts
    room = parts[1] if len(parts) > 2 else FRONT
    return Module(module_name(src, path), room, path.stem == "__init__", path.read_text("utf-8"))


def module_name(src: Path, path: Path) -> str:
    """The dotted name of the module in a file."""
    return ".".join(path.relative_to(src).with_suffix("").parts).removesuffix(".__init__")


def by_room(modules: Mapping[str, Module]) -> dict[str, list[Module]]:
    """The modules of each room, the front first."""
    rooms = sorted({module.room for module in modules.values()})
    return {room: [module for module in modules.values() if module.room == room] for room in rooms}


def sizes(modules: Iterable[Module]) -> dict[str, float]:
    """Files, their median length, and lines."""
    lines = [(module.physical_lines, module.code_lines) for module in modules]
    physical, code = zip(*lines, strict=True)
    median = statistics.median(physical)
    return {"files": len(lines), "median": median, "code": sum(code), "physical": sum(physical)}


def template_lines(src: Path) -> int:
    """Physical lines of the package's templates."""
    templates = [path for path in src.glob(f"{PACKAGE}/**/*") if path.suffix in TEMPLATES]
    return sum(len(path.read_text("utf-8").splitlines()) for path in templates)


def imported(module: Module, modules: Mapping[str, Module]) -> Iterator[str]:
    """The modules of the package that a module imports."""
    for node in module.nodes:
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = _base(module, node)
            names = [name if (name := f"{base}.{alias.name}") in modules else base for alias in node.names]
        else:
            continue
        yield from (name for name in names if name in modules and name != module.name)


def _base(module: Module, node: ast.ImportFrom) -> str:
    """The package or module behind `from`, its dots resolved."""
    if not node.level:
        return node.module or ""
    parts = module.name.split(".")
    parts = parts[: len(parts) - node.level + module.is_package]
    return ".".join([*parts, node.module] if node.module else parts)


def imports(modules: Mapping[str, Module]) -> dict[str, Any]:
    """Edges of the graph of imports, and the pairs of rooms that they join."""
    edges = {(module.name, name) for module in modules.values() for name in imported(module, modules)}
    ends = [(modules[source].room, modules[target].room) for source, target in edges]
    crossing = [pair for pair in ends if pair[0] != pair[1]]
    joined = {frozenset(pair) for pair in crossing}
    front = sum(FRONT in pair for pair in joined)
    rooms = len({module.room for module in modules.values()} - {FRONT})
    return {
        "edges": len(edges),
        "crossing": len(crossing),
        "share_crossing": len(crossing) / max(1, len(edges)),
        "room_pairs": len(joined) - front,
        "possible_room_pairs": rooms * (rooms - 1) // 2,
        "front_pairs": front,
    }


def members(modules: Mapping[str, Module]) -> dict[str, Any]:
    """For each kind, where its samples are named and listed, and in how many files: the medians."""
    return {kind: _members(samples, modules) for kind, samples in SAMPLES.items()}


def _members(samples: Iterable[tuple[str, ...]], modules: Mapping[str, Module]) -> dict[str, Any]:
    found = {sample[0]: naming(modules, *sample) for sample in samples}
    medians = {how: statistics.median(len(one[how]) for one in found.values()) for how in ("listed", "named")}
    return medians | {"samples": found}


def naming(modules: Mapping[str, Module], key: str, cls: str | None = None) -> dict[str, list[str]]:
    """The modules that list a member, and all that name it."""
    words = {("key", key), ("class", cls)}
    places = {
        name: [module.mentions[word] for word in words & module.mentions.keys()]
        for name, module in modules.items()
    }
    return {
        "listed": [name for name, lists in places.items() if any(lists)],
        "named": [name for name, lists in places.items() if lists],
    }


def journeys(src: Path, modules: Mapping[str, Module]) -> dict[str, Any]:
    """What each journey enters, each recorded in a fresh interpreter; why, if one fails."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "results").symlink_to(src.parent / "results")
        return {name: _journey(name, src, modules, Path(folder)) for name in JOURNEYS}


def _journey(name: str, src: Path, modules: Mapping[str, Module], folder: Path) -> dict[str, Any]:
    record = folder / "record.json"
    script = Path(__file__).with_name("journeys.py")
    arguments = [sys.executable, str(script), name, str(src), str(folder), str(record)]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"failed": (done.stderr.strip().splitlines() or ["no message"])[-1]}
    entered = [modules[module_name(src, Path(path))] for path in json.loads(record.read_text())]
    return {
        "modules": [module.name for module in entered],
        "rooms": len({module.room for module in entered}),
        "code": sum(module.code_lines for module in entered),
    }


def count(src: Path, with_journeys: bool = False) -> dict[str, Any]:
    """Every figure of the package in `src`."""
    modules = load(src)
    if not modules:
        raise SystemExit(f"{src} holds no package {PACKAGE}")
    found = {
        "rooms": {room: sizes(inside) for room, inside in by_room(modules).items()},
        "total": sizes(modules.values()) | {"templates": template_lines(src)},
        "imports": imports(modules),
        "members": members(modules),
    }
    return found | ({"journeys": journeys(src, modules)} if with_journeys else {})


def show(found: Mapping[str, Any]) -> Iterator[str]:
    """The figures as lines of text."""
    yield f"{'room':<14}{'files':>8}{'median':>8}{'code':>8}{'physical':>10}"
    for room, one in (found["rooms"] | {"in all": found["total"]}).items():
        yield f"{room:<14}{one['files']:>8}{one['median']:>8g}{one['code']:>8}{one['physical']:>10}"
    total, edges = found["total"], found["imports"]
    templates = total["templates"]
    yield f"with {templates} lines of templates: {total['physical'] + templates} physical lines"
    yield ""
    yield f"{edges['edges']} imports, {edges['crossing']} across rooms ({edges['share_crossing']:.1%})"
    yield f"{edges['room_pairs']} of {edges['possible_room_pairs']} pairs of rooms joined"
    yield f"{FRONT} joined to {edges['front_pairs']} rooms"
    yield from _show_members(found["members"])
    if "journeys" in found:
        yield from _show_journeys(found["journeys"])


def _show_members(found: Mapping[str, Any]) -> Iterator[str]:
    for kind, one in found.items():
        yield ""
        yield f"{kind}, files that list a member: {one['listed']:g}, that name it: {one['named']:g} (medians)"
        for key, names in one["samples"].items():
            others = [name for name in names["named"] if name not in names["listed"]]
            yield f"  {key} is listed in {_short(names['listed'])}"
            if others:
                yield f"  {key} is also named in {_short(others)}"


def _short(names: Iterable[str]) -> str:
    return ", ".join(name.removeprefix(f"{PACKAGE}.") for name in names) or "no file"


def _show_journeys(found: Mapping[str, Any]) -> Iterator[str]:
    yield ""
    yield f"{'journey':<36}{'modules':>8}{'rooms':>8}{'code':>8}"
    for name, one in found.items():
        if "failed" in one:
            yield f"{JOURNEYS[name]:<36} failed: {one['failed']}"
        else:
            yield f"{JOURNEYS[name]:<36}{len(one['modules']):>8}{one['rooms']:>8}{one['code']:>8}"


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description="Count how the package is laid out.")
    parser.add_argument("--src", type=Path, default=Path(__file__).parents[1] / "src")
    parser.add_argument("--journeys", action="store_true", help="record five journeys, which takes minutes")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    found = count(options.src.resolve(), options.journeys)
    print(json.dumps(found, indent=2) if options.json else "\n".join(show(found)))


if __name__ == "__main__":
    main()
