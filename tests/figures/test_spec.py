"""Specifications of figures."""

import json
import math

import altair as alt
import numpy as np

from spectrope.figures.base import Marks, Panel
from spectrope.figures.save import written_svg
from spectrope.figures.spec import panels_spec

VALUES = np.random.default_rng(0).normal(size=20).tolist()


def drawn(values):
    rows = [
        {"x": i, "name": f"n{i}", "y": value, "seen": True, "lost": None} for i, value in enumerate(values)
    ]
    marks = Marks(rows, alt.Chart().mark_line().encode(x="x:Q", y="y:Q"))
    return panels_spec([Panel("", "one", {"line": marks}, height=100)], width=200, columns=1)


def test_the_last_digits_of_a_processor_do_not_show():
    after = drawn([float(np.nextafter(value, 9.0)) for value in VALUES])
    assert written_svg(drawn(VALUES)) == written_svg(after)
    assert drawn(VALUES) != drawn([value * (1 + 1e-8) for value in VALUES])


def test_numbers_that_are_not_finite_are_missing():
    rows = drawn([math.inf, math.nan, 1.0])["vconcat"][0]["concat"][0]["data"]["values"]
    assert [row["y"] for row in rows] == [None, None, 1.0]
    json.dumps(rows, allow_nan=False)


def test_rows_keep_what_is_no_fraction():
    row = drawn(VALUES)["vconcat"][0]["concat"][0]["data"]["values"][0]
    assert row == {"x": 0, "name": "n0", "y": float(f"{VALUES[0]:.10g}"), "seen": True, "lost": None}
    assert isinstance(row["x"], int)
