"""The data card of the study."""

from pathlib import Path

from spectrope.lab import SCALES
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
    assert all(f"`results/{file.name}`" in page for file in RESULTS.glob("m*.jsonl"))
    assert "| R1 | `model.causal` | `True` | `False` | all |" in page
    assert "| R5 | `model.encoding.slopes` | `standard` | `exponential` | ALiBi |" in page
    assert COMMITTED.read_text("utf-8") == page


def test_a_folder_without_rows_has_a_card_too(tmp_path):
    assert "## Scales" in data_card(tmp_path)
