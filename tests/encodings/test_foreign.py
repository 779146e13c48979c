"""Encodings from a user's own file: loaded once, checked by the same laws, refused in one line."""

from pathlib import Path

import pytest

from spectrope.core import foreign
from spectrope.core.errors import ConfigError
from spectrope.core.foreign import is_foreign, loaded_files
from spectrope.encodings.base import ENCODINGS, Tag
from spectrope.encodings.laws import laws_of

MINE = '''
from dataclasses import dataclass
import torch
from spectrope.encodings.base import Encoding, EncodingConfig, LagBias, Tag

class Mine(LagBias, name="mine"):
    """My own."""
    tags = frozenset({tags})
    @dataclass(frozen=True, kw_only=True)
    class Config(EncodingConfig):
        n_heads: int = 4
    def lag_bias(self, lag):
        return -lag.abs()[..., None].double().expand(*lag.shape, self.config.n_heads)

class Nameless(LagBias):
    pass

number = 3
'''


@pytest.fixture(autouse=True)
def registry(monkeypatch):
    monkeypatch.setattr(ENCODINGS, "_members", {name: ENCODINGS[name] for name in ENCODINGS})
    monkeypatch.setattr(foreign, "_loaded", {})  # or the workers of later tests would load these files too


def written(path: Path, tags: str = "{Tag.SHIFT_INVARIANT, Tag.CONTENT_FREE}") -> Path:
    path.write_text(MINE.replace("{tags}", tags))
    return path


def test_a_class_in_a_file_becomes_an_encoding(tmp_path):
    file = written(tmp_path / "mine.py")
    assert is_foreign(f"{file}:Mine")
    assert not is_foreign("rope")
    assert ENCODINGS.resolve(f"{file}:Mine") == "mine"
    assert ENCODINGS.resolve(f"{file}:Mine") == "mine"
    assert loaded_files().count(file) == 1
    assert all(check.honest for check in laws_of("mine"))


def test_a_false_declaration_is_found(tmp_path):
    ENCODINGS.resolve(f"{written(tmp_path / 'false.py', '{Tag.ISOMETRIC}')}:Mine")
    wrong = {check.law for check in laws_of("mine") if not check.honest}
    assert wrong == {Tag.ISOMETRIC, Tag.SHIFT_INVARIANT, Tag.CONTENT_FREE}


def test_an_edited_file_is_another_version(tmp_path, monkeypatch):
    file = written(tmp_path / "mine.py")
    config = {"kind": "sum", "parts": [{"kind": "rope"}, {"kind": ENCODINGS.resolve(f"{file}:Mine")}]}
    first = ENCODINGS.digests(config)
    assert list(first) == ["mine"]
    ENCODINGS.require_digests(first)
    monkeypatch.setattr(foreign, "_loaded", {})
    others = {name: ENCODINGS[name] for name in ENCODINGS if name != "mine"}
    monkeypatch.setattr(ENCODINGS, "_members", others)
    with pytest.raises(
        ConfigError, match="encoding 'mine' comes from a file, which is only executed on request"
    ):
        ENCODINGS.require_digests(first)
    file.write_text(file.read_text().replace("-lag.abs()", "-2 * lag.abs()"))
    ENCODINGS.resolve(f"{file}:Mine")
    assert ENCODINGS.digests(config) != first
    with pytest.raises(ConfigError, match="the file of encoding 'mine' has changed"):
        ENCODINGS.require_digests(first)
    assert ENCODINGS.digests({"kind": "rope"}) == {}


def test_what_is_not_finite_obeys_no_law(tmp_path):
    file = written(tmp_path / "mine.py")
    file.write_text(file.read_text().replace("-lag.abs()", "float('nan') * lag.abs()"))
    ENCODINGS.resolve(f"{file}:Mine")
    assert not any(check.holds for check in laws_of("mine") if check.declared)


def test_mistakes_get_one_line(tmp_path):
    file = written(tmp_path / "mine.py")
    with pytest.raises(ConfigError, match="has no 'Yours'"):
        ENCODINGS.resolve(f"{file}:Yours")
    with pytest.raises(ConfigError, match=":number is not a class that derives from Encoding"):
        ENCODINGS.resolve(f"{file}:number")
    with pytest.raises(ConfigError, match=r"Nameless is not registered as encoding; declare it as `class N"):
        ENCODINGS.resolve(f"{file}:Nameless")
    with pytest.raises(
        ConfigError, match=r"none\.py is not a file; a class or function of your own is named as"
    ):
        ENCODINGS.resolve(f"{tmp_path}/none.py:Mine")
    (tmp_path / "broken.py").write_text("import nothing_of_that_name")
    where = r"cannot be run: .*broken\.py, line 1: ModuleNotFoundError: No module named"
    with pytest.raises(ConfigError, match=where):
        ENCODINGS.resolve(f"{tmp_path}/broken.py:Mine")
    (tmp_path / "over.py").write_text("raise SystemExit(0)")
    with pytest.raises(ConfigError, match=r"over\.py, line 1: SystemExit: 0\."):
        ENCODINGS.resolve(f"{tmp_path}/over.py:Mine")
    with pytest.raises(ConfigError, match=r"mine\.py names no class in a file; name it as path/to/file\.py:"):
        ENCODINGS.resolve("mine.py")
    file.write_text(file.read_text().replace("n_heads: int = 4", "n_heads: int").replace('"mine"', '"blank"'))
    (tmp_path / "blank.py").write_text(file.read_text())
    with pytest.raises(ConfigError, match=r"every field needs a default; TypeError: .*n_heads"):
        ENCODINGS.resolve(f"{tmp_path}/blank.py:Mine")
