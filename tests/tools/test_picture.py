"""The picture of the rooms is the one that the import contract describes."""

import re
from pathlib import Path

from tools.picture import PICTURE, drawn, floors, purpose

ROOT = Path(__file__).parents[2]


def test_the_committed_picture_is_that_of_the_contract():
    assert PICTURE.read_text(encoding="utf-8") == drawn(floors()), "run `python tools/picture.py`"


def test_the_picture_shows_every_room_floor_by_floor():
    shown = re.findall(r">(\w+)/</text>", PICTURE.read_text(encoding="utf-8"))
    rooms = [room for floor in floors() for room in floor]
    assert shown == rooms
    package = ROOT / "src" / "spectrope"
    assert set(rooms) == {path.parent.name for path in package.glob("*/__init__.py")}
    assert all(purpose(room) for room in rooms)


def test_the_picture_stands_in_the_contributing_page():
    assert "docs/images/house.svg" in (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_tests_mirror_the_package_folder_by_folder():
    package, tests = ROOT / "src" / "spectrope", ROOT / "tests"
    modules = {path.parent.relative_to(package) for path in package.rglob("[!_]*.py")}
    tested = {path.parent.relative_to(tests) for path in tests.rglob("test_*.py")}
    assert tested - {Path("tools")} == modules | {Path()}
