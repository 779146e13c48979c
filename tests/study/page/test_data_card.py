"""The data card of the study."""

from pathlib import Path

from spectrope.lab import SCALES
from spectrope.store import append_record
from spectrope.study.conditions import SWITCHES
from spectrope.study.page.data_card import data_card
from spectrope.tasks import TASKS

RESULTS = Path(__file__).parents[3] / "results"
COMMITTED = RESULTS.parent / "docs" / "explanation" / "data-card.md"


def test_the_card_has_every_scale_task_switch_and_file_of_rows():
    page = data_card(RESULTS)
    assert all(f"| `{scale}` |" in page for scale in SCALES)
    assert all(f"### `{task}`" in page for task in TASKS)
    assert all(f"| {switch} | `" in page for switch in SWITCHES)
    assert all(f"`results/{name}.jsonl`" in page for name in ("mini", "mid", "mid-pilots"))
    assert "| R1 | `model.causal` | `True` | `False` | all |" in page
    assert "| R5 | `model.encoding.slopes` | `standard` | `exponential` | ALiBi |" in page
    assert "| `mid` | 97 | 30 | 40, 50, 60, 67 | " in page
    assert "| `results/mini.jsonl` | mini | grokking | 96 | " in page
    assert COMMITTED.read_text("utf-8") == page


def test_a_folder_without_rows_has_a_card_too(tmp_path):
    assert "## Scales" in data_card(tmp_path)


def test_a_record_that_is_no_row_is_left_out(tmp_path):
    lines = (RESULTS / "mid.jsonl").read_text().splitlines()
    (tmp_path / "mid.jsonl").write_text(lines[0] + "\n")
    append_record(tmp_path / "mid.jsonl", {"run": "x"})
    assert "| `results/mid.jsonl` | mid | controlled | 1 | 1, 0 to 0 |" in data_card(tmp_path)
