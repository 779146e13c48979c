"""What the parser cannot read is told in one line: what is expected, what was typed, and the way out."""

import sys

import pytest
from tests.cli.typed import refused

from spectrope.cli import main
from spectrope.cli.catalogue import commands
from spectrope.cli.help import pages

CASES = {
    "claims list --condition released": "claims list has no option --condition. See `spectrope",
    "compare --seedz 3": "compare has no option --seedz; did you mean --seeds? See `spectrope",
    "grok --p abc": "grok --p takes a whole number; got 'abc'.",
    "grok --p=7.5": "grok --p takes a whole number; got '7.5'.",
    "grok --fraction much": "grok --fraction takes a number; got 'much'.",
    "spectrum rope --length 1.5": "spectrum --length takes a whole number; got '1.5'.",
    "train --epochs": "train --epochs takes a whole number; got nothing.",
    "train --precision bf99": "train --precision takes one of auto, float32, bfloat16; got 'bf99'.",
    "audit": "audit needs MODEL: Checkpoint: a folder, a cached Hugging Face id, or a GGUF file.",
    "paper table x": "paper table takes a whole number as NUMBER; got 'x'.",
    "diff original": "diff needs SECOND: Second checkpoint.",
    "audit x y z": "audit takes no further argument; got y, z.",
    "claims": "claims is followed by one of list, show, pilots, run, harvest, report, publish, audit. See",
    "claims lst": "followed by one of list, show, pilots, run, harvest, report, publish, audit; got 'lst'.",
}


@pytest.mark.parametrize("typed", CASES)
def test_mistakes(typed, capsys):
    assert CASES[typed] in refused(capsys, *typed.split())


@pytest.mark.parametrize("name", [name for name, page in pages().items() if not page.actions])
def test_every_command_refuses_an_unknown_option_in_one_line(name, capsys):
    assert f"{name} has no option --zzz. See `spectrope {name} --help`." in refused(capsys, name, "--zzz")


def test_a_narrow_terminal_changes_no_word(capsys, monkeypatch):
    wide = refused(capsys, "train", "--precision", "bf99")
    monkeypatch.setenv("COLUMNS", "30")
    assert refused(capsys, "train", "--precision", "bf99") == wide


def test_what_is_printed_while_a_command_is_filled_in_is_not_lost(capsys, monkeypatch):
    load = type(commands()["encodings"]).load

    def loud(self):
        print("a warning", file=sys.stderr)
        return load(self)

    monkeypatch.setattr(type(commands()["encodings"]), "load", loud)
    assert main(("encodings", "rope")) == 0
    assert "a warning" in capsys.readouterr().err
