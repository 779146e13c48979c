"""The figure of accuracy by length: it shows the committed scores, and nothing scored is trained again."""

import re
from dataclasses import replace

import polars as pl

from spectrope.figures import write_spec
from spectrope.lab import comparison_plan
from tools import lengths


def labels(svg: str) -> list[str]:
    """What the marks of a picture say of themselves."""
    return sorted(re.findall(r'aria-label="([^"]*)"', svg))


def test_the_picture_shows_the_scores_beside_it(tmp_path):
    write_spec(lengths.drawn(lengths.known()), tmp_path / "lengths.svg")
    assert labels((tmp_path / "lengths.svg").read_text()) == labels(lengths.DRAWN.read_text())


def test_twelve_encodings_have_the_same_seeds_and_lengths():
    scored = lengths.known()
    assert sorted(set(scored["encoding"])) == sorted(lengths.ENCODINGS.split())
    groups = scored.group_by("encoding").agg(pl.struct("seed", "factor").sort().implode())
    assert groups.drop("encoding").unique().height == 1


def test_what_has_scores_is_not_trained_again(tmp_path, monkeypatch):
    monkeypatch.setattr(lengths, "SCORES", tmp_path / "lengths.csv")
    (one,) = comparison_plan(["rope"], "distance", [5])
    assert not lengths.is_scored(one)
    row = dict.fromkeys(lengths.COLUMNS, 1.0) | {"scaling": "none", "note": ""}
    lengths.add([pl.DataFrame([{"encoding": "rope", "seed": 5} | row])])
    lengths.add([pl.DataFrame([{"encoding": "alibi", "seed": 0} | row])])
    assert lengths.is_scored(one)
    assert not lengths.is_scored(replace(one, seed=4))
    assert lengths.known()["encoding"].to_list() == ["alibi", "rope"]
