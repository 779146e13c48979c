"""The stored results of the campaign, and the page that quotes them."""

import json
from pathlib import Path

import pytest
import torch
from campaigns.parity import DRAWN, SOUND
from campaigns.parity_faults import Draw
from campaigns.parity_results import HELD, RESULTS, confusion, layers_named, layers_right, matrix

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "parity.md"
RECORD = json.loads(RESULTS.read_text(encoding="utf-8"))


def test_the_page_has_the_confusion_matrix_and_the_counts():
    page = PAGE.read_text(encoding="utf-8")
    assert matrix(RECORD) in page
    assert f"{RECORD['named']} of {RECORD['faults']} faults" in page
    assert f"{RECORD['pairs_without_a_named_cause']} of {RECORD['pairs_without_fault']} pairs" in page


def test_the_layers_that_were_named_are_those_of_the_verdicts():
    assert layers_named("Acts like base 5 in layer 0, 1 from position 8 (SPE101); the next best") == [0, 1]
    assert layers_named("Acts like a window (SPE202); the next best, x in layer 1 (SPE101), is") == []
    assert layers_named("No cause: ...") is None
    assert f"with the right layers in {layers_right(RECORD['rows'])}" in PAGE.read_text(encoding="utf-8")


def test_the_counts_are_those_of_the_rows():
    assert len(RECORD["rows"]) == DRAWN
    assert RECORD["named"] == sum(row["code"] in row["named"] for row in RECORD["rows"])
    assert RECORD["confusion"] == confusion(RECORD["rows"])
    assert len(RECORD["without_fault"]) == len(SOUND)


def test_the_rows_are_what_the_seed_draws():
    draw, drawn = Draw(HELD), []
    for _ in range(2 * DRAWN):
        fault = draw.fault()
        drawn.append((fault.code, fault.words, str(draw.rng.choice(["float32", "bfloat16"]))))
    rows = [(row["code"], row["fault"], row["dtype"]) for row in RECORD["rows"]]
    kept = iter(drawn)
    assert all(row in kept for row in rows)  # In this order; some in between change nothing.


def test_faults_go_into_the_model_and_come_out():
    from tests.checkpoints.parity.induction import FOLDER, sequences

    from spectrope.checkpoints import open_model

    ids = sequences(1, 128, seed=1)[0]  # Longer than any window that is drawn.
    sound = open_model(FOLDER)(ids).logits
    for kind in ("cap", "window", "sense", "values", "growth"):
        model = open_model(FOLDER)
        with pytest.MonkeyPatch.context() as patch:
            getattr(Draw(0), kind)()[1](model, patch)
            assert not torch.equal(model(ids).logits, sound), kind
        assert torch.equal(open_model(FOLDER)(ids).logits, sound)
