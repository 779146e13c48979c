"""The figure of accuracy by the share of questions about position: it shows the committed scores."""

import re

import polars as pl

from spectrope.figures import panels_spec, write_spec
from tools import position_share


def labels(svg: str) -> list[str]:
    """What the marks of a picture say of themselves."""
    return sorted(re.findall(r'aria-label="([^"]*)"', svg))


def test_the_picture_shows_the_scores_beside_it(tmp_path):
    scores = pl.read_csv(position_share.DRAWN.with_suffix(".csv"))
    spec = panels_spec([position_share.panel(scores)], position_share.WIDTH, 1)
    write_spec(spec, tmp_path / "drawn.svg")
    assert labels((tmp_path / "drawn.svg").read_text()) == labels(position_share.DRAWN.read_text())


def test_the_plan_has_every_share_for_every_encoding_and_seed():
    plan = position_share.plan(["rope", "nope"], [0.0, 1.0], seeds=2, epochs=1)
    found = {(one.encoding_name, one.task.position_share, one.seed) for one in plan}
    assert found == {
        (name, share, seed) for name in ("rope", "nope") for share in (0.0, 1.0) for seed in (0, 1)
    }
    assert {one.training.epochs for one in plan} == {1}
