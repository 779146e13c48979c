"""Tables at the width of a terminal."""

import polars as pl
import pytest

from spectrope.console import complain, console, frame, say, table

NAMES = ("Toeplitz", "p", "contr.", "residual", "rank", "spread", "content", "raw")


@pytest.mark.parametrize(("width", "omitted"), [(120, []), (80, ["content", "raw"]), (60, [*NAMES[4:]])])
def test_numbers_are_never_folded_and_columns_that_do_not_fit_are_named(capsys, monkeypatch, width, omitted):
    monkeypatch.setattr(console, "width", width)
    frame("", pl.DataFrame({"layer": [0, 1], "head": [2, 3]} | {name: [0.0662, 0.0343] for name in NAMES}))
    printed = capsys.readouterr().out
    _, heading, _, *rows = [line.split() for line in printed.splitlines()][:5]
    shown = [name for name in NAMES if name not in omitted]
    assert heading == ["layer", "head", *shown]
    assert rows == [["0", "2", *["0.0662"] * len(shown)], ["1", "3", *["0.0343"] * len(shown)]]
    assert ("Omitted at this width: " in printed) == bool(omitted)
    assert all(name in printed for name in omitted)


def test_a_long_text_is_folded_beside_numbers(capsys, monkeypatch):
    monkeypatch.setattr(console, "width", 40)
    frame("", pl.DataFrame({"why": ["words that do not fit into forty columns"], "p": [0.0343]}))
    printed = capsys.readouterr().out
    assert "0.0343" in printed
    assert "Omitted" not in printed


def test_text_of_others_cannot_control_the_terminal(capsys):
    name = "a\x1b[2Jb\x9bc\u202ed"
    say(f"{name} and\ntwo lines")
    table("", (name,), [(name,)])
    complain(name)
    out, err = capsys.readouterr()
    assert out.count("a\ufffd[2Jb\ufffdc\ufffdd") == 3
    assert "and\ntwo lines" in out
    assert err == "spectrope: a\ufffd[2Jb\ufffdc\ufffdd\n"
