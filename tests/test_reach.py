"""No function or class is dead: code other than its own, a page or a tool names it."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "spectrope"
WORD = re.compile(r"[A-Za-z_]\w*")
KEPT = {"find_runs"}  # What tests look into folders with.


def dead(package: Path, others: str) -> list[str]:
    """Names of functions and classes at the top level of modules that nothing but themselves mentions.

    Args:
        package: Folder of Python files.
        others: Text from outside that may name them.
    """
    trees = {path: ast.parse(path.read_text("utf-8")) for path in sorted(package.rglob("*.py"))}
    mentioned = Counter(WORD.findall(others))
    for tree in trees.values():
        mentioned.update(_mentions(tree))
    return [
        f"{path.relative_to(package)}: {node.name}"
        for path, tree in trees.items()
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
        and not _is_found_by_name(path, node)
        and mentioned[node.name] <= Counter(_mentions(node))[node.name]
    ]


def _mentions(tree: ast.AST) -> Iterator[str]:
    """Names that code uses: of variables and attributes, and texts that are one name."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name):
                yield name
            case ast.Constant(value=str(text)) if text.isidentifier():
                yield text


def _is_found_by_name(path: Path, node: ast.AST) -> bool:
    """Whether it is a member of a registry, a command, or what Python itself asks for."""
    if path.parent.name == "commands" or getattr(node, "name", "").startswith("__"):
        return True
    return isinstance(node, ast.ClassDef) and any(word.arg == "name" for word in node.keywords)


def _code(path: Path) -> str:
    """A file's text; of a page, what it sets as code."""
    text = path.read_text("utf-8")
    return " ".join(re.findall(r"```.*?```|`[^`\n]+`", text, re.DOTALL)) if path.suffix == ".md" else text


def test_nothing_in_the_package_is_dead():
    outside = [
        PACKAGE / "__init__.pyi",
        *(PACKAGE.rglob("*.html")),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "docs").rglob("*.py"),
        *(ROOT / "tools").glob("*.py"),
        *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "Makefile", "pyproject.toml")),
    ]
    text = "\n".join(_code(path) for path in outside)
    assert [place for place in dead(PACKAGE, text) if place.split(": ")[1] not in KEPT] == []


def test_what_only_names_itself_is_dead(tmp_path):
    functions = "def used(): ...\ndef again(): return again()\ndef paged(): ...\nused()\n"
    code = functions + "class Member(Base, name='m'): ...\n"
    (tmp_path / "one.py").write_text(code)
    assert dead(tmp_path, "`paged`") == ["one.py: again"]
