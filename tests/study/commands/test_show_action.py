"""`spectrope claims show`: one claim, its test and its verdicts."""

import json

import pytest
from tests.study.made import jitter, rows_of

from spectrope.cli import main
from spectrope.console.terminal import console
from spectrope.study.claims.latent_attention import LatentAttention
from spectrope.study.rows import StudyRows


@pytest.fixture
def rows(tmp_path, monkeypatch):
    """Rows under `controlled` in which MLA is 20 points behind."""
    monkeypatch.setattr(console, "width", 100)
    made = rows_of(
        LatentAttention(),
        lambda arm, seed: {"test": 70.0 + (20.0 + 0.01 * jitter(seed)) * (arm == "distance/rope")},
    )
    stored = StudyRows(tmp_path / "mini.jsonl")
    for row in made:
        stored.add(row)
    return tmp_path


def test_a_claim_is_shown_in_thirty_lines(rows, capsys):
    assert main(["claims", "show", "7", "--rows", str(rows)]) == 0
    printed = capsys.readouterr().out
    assert len(printed.splitlines()) <= 30
    assert "7. Task 1: MLA costs at most 10 points of RoPE's accuracy (latent-attention)" in printed
    assert "Decided by: Task 1, RoPE minus MLA, held-out accuracy in points." in " ".join(printed.split())
    assert "contradicted" in printed
    assert "Beside the effect" not in printed
    assert "20.0 [20.0 to 20.0]" in printed


def test_what_the_effect_does_not_tell_is_shown_beside_it(tmp_path, capsys):
    stored = StudyRows(tmp_path / "mini.jsonl")
    for row in rows_of(LatentAttention(), lambda arm, seed: {"test": 60.0 + jitter(seed), "train": 70.0}):
        stored.add(row)
    assert main(["claims", "show", "7", "--rows", str(tmp_path)]) == 0
    told = "Beside the effect, controlled: correct answers on training examples: RoPE 70.0 %, MLA 70.0 %"
    assert told in " ".join(capsys.readouterr().out.split())


def test_json_has_every_part(rows, capsys):
    assert main(["claims", "show", "latent-attention", "--rows", str(rows), "--json"]) == 0
    parts = json.loads(capsys.readouterr().out)
    (headline,) = (one for one in parts if one["role"] == "headline" and one["condition"] == "controlled")
    assert headline["estimate"] == pytest.approx(20.0)
    assert headline["claim_verdict"] == "contradicted"


def test_an_unknown_claim_is_refused(capsys):
    assert main(["claims", "show", "latent"]) == 2
    assert "unknown claim 'latent'; did you mean latent-attention" in capsys.readouterr().err
