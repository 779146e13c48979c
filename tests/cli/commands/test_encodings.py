"""`spectrope encodings`: the catalogue, and what each encoding costs."""

import re

import pytest
from tests.cli.typed import refused

from spectrope.attention import cost
from spectrope.attention.cost import UncostedEncoding
from spectrope.attention.heads import ATTENTIONS
from spectrope.cli import INTERRUPTED, main
from spectrope.encodings import NAMED
from spectrope.encodings.base import ENCODINGS
from spectrope.encodings.positions.base import POSITIONS
from spectrope.encodings.schedules.base import SCHEDULES

pytestmark = pytest.mark.usefixtures("here")


def test_the_catalogue_names_every_encoding(capsys):
    assert main(("encodings",)) == 0
    out = capsys.readouterr().out
    listed = [*ENCODINGS, *SCHEDULES, *POSITIONS, *ATTENTIONS, *NAMED]
    assert re.findall(r"^  (\w+) ", out, re.MULTILINE) == listed
    assert main(("encodings", "rope")) == 0
    shown = capsys.readouterr().out
    assert "laws: content-free, isometric, shift-invariant" in shown
    assert "schedule=geometric" in shown
    assert main(("encodings", "shape")) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("shape (sinusoidal@shifted)")
    assert "Kiyono" in shown
    assert main(("encodings", "mla")) == 0
    shown = capsys.readouterr().out
    assert "laws" not in shown
    assert "defaults: latent=128, query_latent=128, rotary_dim=16, rotary_queries=per_head" in shown


def test_cards_of_parts_and_of_names_that_two_things_have(capsys):
    assert main(("encodings", "YaRN", "shifted", "learned")) == 0
    out = capsys.readouterr().out
    assert re.findall(r"^(\w+) \((.*)\)", out, re.MULTILINE) == [
        ("yarn", "frequency schedule"),
        ("shifted", "positions"),
        ("learned", "absolute; dot"),
        ("learned", "frequency schedule"),
    ]
    assert "formula: \\omega_j = (\\gamma_j" in out
    assert "did you mean yarn" in refused(capsys, "encodings", "yarm")


def test_costs_are_printed_beside_none_also_when_interrupted(capsys, monkeypatch):
    monkeypatch.setattr(cost, "REPEATS", 2)
    monkeypatch.setattr(cost, "SAMPLE_SECONDS", 0.0)
    assert main(("encodings", "rope", "alibi", "--bench", "--length", "9")) == 0
    out = capsys.readouterr().out
    assert "16 heads of width 16, 8 x 9 tokens, float32" in out
    number = r"[\d.]+"
    ratio = rf"{number} \({number}, {number}\)"
    assert re.search(rf"rope +explicit +{ratio} +{ratio} +{number} +{number}", out)

    def once(names, length, device):
        yield UncostedEncoding("rope", "too long.")
        raise KeyboardInterrupt

    monkeypatch.setattr("spectrope.cli.cards.costs", once)
    assert main(("encodings", "--bench")) == INTERRUPTED
    assert "rope: too long." in capsys.readouterr().out


def test_costs_of_what_is_unknown_are_refused_without_a_table(capsys):
    assert "did you mean rope" in refused(capsys, "encodings", "ropee", "--bench")
    assert "length must be at least 1; got 0" in refused(capsys, "encodings", "--length", "0")
