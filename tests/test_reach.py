"""No function, class or constant is dead: code other than its own, a page or a tool names it."""

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
    """Names at the top level of modules that nothing but their own definition mentions.

    Args:
        package: Folder of Python files.
        others: Text from outside that may name them.
    """
    trees = {path: ast.parse(path.read_text("utf-8")) for path in sorted(package.rglob("*.py"))}
    mentioned = Counter(WORD.findall(others))
    for tree in trees.values():
        mentioned.update(_mentions(tree))
    return [
        f"{path.relative_to(package)}: {name}"
        for path, tree in trees.items()
        for node in tree.body
        for name in _defined(node)
        if not _is_found_by_name(path, name, node) and mentioned[name] <= Counter(_mentions(node))[name]
    ]


def _defined(node: ast.stmt) -> list[str]:
    """The names that a statement defines."""
    match node:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case ast.Assign(targets=targets):
            inner = (one for target in targets for one in ast.walk(target))
            return [one.id for one in inner if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)]
        case ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
    return []


def _mentions(tree: ast.AST) -> Iterator[str]:
    """Names that code uses: of variables and attributes, and texts that are one name."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Load()) | ast.Attribute(attr=name):
                yield name
            case ast.Constant(value=str(text)) if text.isidentifier():
                yield text


def _is_found_by_name(path: Path, name: str, node: ast.stmt) -> bool:
    """Whether it is a member of a registry, a command, or what Python or pytest asks for."""
    is_command = path.parent.name == "commands" and name == path.stem.title().replace("_", "")
    if is_command or name.startswith(("__", "pytest_")):
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
    code = functions + "class Member(Base, name='m'): ...\nA, b = 1, 2\nprint(b)\n"
    (tmp_path / "one.py").write_text(code)
    assert dead(tmp_path, "`paged`") == ["one.py: again", "one.py: A"]
