"""The counts of a package small enough to count by hand, and those of the package itself."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tools import house, journeys

SRC = Path(house.__file__).parents[1] / "src"
FILES = {
    "__init__.py": '''"""A docstring of the module
over two lines."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spectrope.tasks.addition import Addition
''',
    "core/__init__.py": "",
    "core/registry.py": '''# A comment by itself.
TEXT = """two lines,

both code"""  # And the empty line between them.


def register(name):
    """A docstring."""
    return name  # Code with a comment.
''',
    "tasks/__init__.py": "from .addition import Addition\n",
    "tasks/addition.py": '''"""The task "addition"."""
from spectrope.core import registry
from spectrope.core.registry import register, TEXT


class Addition(name="addition"):
    """Of numbers."""

    x: int = (
        1
    )
''',
    "cli/__init__.py": """import json

NAMES = ("counting", "addition")


def run():
    import spectrope.core.registry

    "addition"
    return 0
""",
    "cli/show.py": """from ..tasks import addition
from .. import cli
from spectrope.missing import nothing

addition.start("addition")
""",
    "cli/page.html": "<p>\n\n</p>\n",
}


@pytest.fixture
def src(tmp_path):
    for name, text in FILES.items():
        path = tmp_path / "src" / "spectrope" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "src"


def test_lines_files_and_medians_by_room(src):
    found = house.count(src)
    assert found["rooms"] == {
        "(front)": {"files": 1, "median": 7, "code": 3, "physical": 7},
        "cli": {"files": 2, "median": 7.5, "code": 10, "physical": 15},
        "core": {"files": 2, "median": 4.5, "code": 5, "physical": 9},
        "tasks": {"files": 2, "median": 6, "code": 7, "physical": 12},
    }
    assert found["total"] == {"files": 7, "median": 7, "code": 25, "physical": 43, "templates": 3}


def test_imports_lead_to_modules(src):
    modules = house.load(src)
    imported = {name: sorted(set(house.imported(module, modules))) for name, module in modules.items()}
    assert imported == {
        "spectrope": ["spectrope.tasks.addition"],
        "spectrope.cli": ["spectrope.core.registry"],
        "spectrope.cli.show": ["spectrope.cli", "spectrope.tasks.addition"],
        "spectrope.core": [],
        "spectrope.core.registry": [],
        "spectrope.tasks": ["spectrope.tasks.addition"],
        "spectrope.tasks.addition": ["spectrope.core.registry"],
    }
    assert house.imports(modules) == {
        "edges": 6,
        "crossing": 4,
        "share_crossing": 4 / 6,
        "room_pairs": 3,
        "possible_room_pairs": 3,
        "front_pairs": 1,
    }


def test_files_that_list_a_member_and_files_that_name_it(src):
    assert house.naming(house.load(src), "addition", "Addition") == {
        "listed": ["spectrope.cli", "spectrope.tasks.addition"],
        "named": [
            "spectrope",  # imports the class
            "spectrope.cli",
            "spectrope.cli.show",  # passes the key to a function
            "spectrope.tasks",
            "spectrope.tasks.addition",
        ],
    }


@pytest.mark.parametrize(
    ("code", "listed"),
    [
        ("x = {'key': 1}", True),
        ("x['key'] = 1", True),
        ("x['key']", False),
        ("X = Literal['key', 'other']", True),
        ("X = Literal['key']", True),
        ("class Row:\n    key: float", True),
        ("class Member(Base, name='key'): ...", False),
        ("class Key(Base): ...", True),
        ("X = Key | None", True),
        ("x = 'key' == y", False),
        ("x = module.Key()", False),
    ],
)
def test_what_lists_a_member(code, listed):
    module = house.Module("one", "room", False, code)
    found = house.naming({"one": module}, "key", "Key")
    assert found == {"listed": ["one"] if listed else [], "named": ["one"]}


def test_another_folder_is_refused(tmp_path):
    with pytest.raises(SystemExit, match="holds no package spectrope"):
        house.count(tmp_path)


def test_functions_that_run_count_as_entered_and_imports_do_not(tmp_path, monkeypatch):
    package = tmp_path / "lived"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "helper.py").write_text("def double(x):\n    return 2 * x\n")
    (package / "loaded.py").write_text("from lived.helper import double\nclass A:\n    x = double(1)\n")
    (package / "entered.py").write_text(
        "def journey():\n    import lived.loaded\n    class B:\n        x = lived.loaded.A.x\n    return B\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    recorder, before = journeys.Recorder(package), sys.getprofile()
    recorder.watch(importlib.import_module("lived.entered").journey)
    assert recorder.entered == {str(package / "entered.py")}
    assert sys.getprofile() is before
    recorder.watch(lambda: sys.modules["lived.helper"].double(1))
    assert recorder.entered == {str(package / "entered.py"), str(package / "helper.py")}


def test_compiled_templates_do_not_count(tmp_path):
    functions = {}
    exec(compile("def root(): return 1", str(tmp_path / "page.html"), "exec"), functions)
    recorder = journeys.Recorder(tmp_path)
    recorder.watch(functions["root"])
    assert recorder.entered == set()


def test_every_sample_is_named_in_the_package():
    found = house.count(SRC)
    missing = [
        key
        for kind in found["members"].values()
        for key, names in kind["samples"].items()
        if not names["named"]
    ]
    assert not missing
    assert found["total"]["files"] == sum(one["files"] for one in found["rooms"].values())
    assert 0 < found["total"]["code"] < found["total"]["physical"]
    assert 0 < found["imports"]["crossing"] < found["imports"]["edges"]
    assert 0 < found["imports"]["room_pairs"] <= found["imports"]["possible_room_pairs"]


def test_the_script_prints_a_table_or_json(src):
    command = [sys.executable, house.__file__, "--src", str(src)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "6 imports, 4 across rooms (66.7%)" in text
    assert "with 3 lines of templates: 46 physical lines" in text
    record = subprocess.run([*command, "--json"], capture_output=True, text=True, check=True).stdout
    assert json.loads(record) == house.count(src)
