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


def test_no_mark_of_code_is_drawn():
    assert "`" not in PICTURE.read_text(encoding="utf-8")


def test_tests_mirror_the_package_folder_by_folder():
    package, tests = ROOT / "src" / "spectrope", ROOT / "tests"
    modules = {path.parent.relative_to(package) for path in package.rglob("[!_]*.py")}
    tested = {path.parent.relative_to(tests) for path in tests.rglob("test_*.py")}
    assert tested - {Path("tools")} == modules | {Path()}


def test_the_page_of_rooms_names_every_folder_and_none_that_is_not_there():
    package = ROOT / "src" / "spectrope"
    page = (ROOT / "docs" / "explanation" / "rooms.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([a-z_/]+/(?:\w+\.\w+)?)`", page)) - {
        "src/spectrope/",
        "spectrope/__init__.pyi",
    }
    shared = {"commands/", "templates/"}  # Of each room that has any.
    elsewhere = {"src/spectrope/lab/measures/", "tests/lab/measures/"}
    assert not [path for path in named - shared - elsewhere if not (package / path).exists()]
    folders = {path.parent.relative_to(package).as_posix() for path in package.rglob("[!_]*.py")} - {"."}
    assert not [
        one
        for one in folders
        if not one.endswith("/commands") and not any(path.startswith(f"{one}/") for path in named)
    ]


def test_the_text_of_a_box_stays_within_it():
    picture = PICTURE.read_text(encoding="utf-8")
    assert max(len(text) for text in re.findall(r'font-size="10" fill="#333">([^<]*)<', picture)) <= 86
    in_thirds = [text for text in re.findall(r">([^<]*)</text>", picture) if "linear time" in text]
    assert all(len(text) <= 50 for text in in_thirds)
