"""GGUF files converted rightly pass, and each fault of a conversion is named, without a runtime."""

import pytest
from tests.checkpoints.gguf.cases import RIGHT, WRONG
from tests.checkpoints.gguf.files import write

from spectrope.checkpoints.gguf import audit_gguf


def audited(case, folder):
    model = case.model()
    model.save_pretrained(folder / "source")
    return audit_gguf(write(model, folder / "model.gguf", case.conversion), folder / "source")


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_conversion_matches(name, tmp_path):
    audit = audited(RIGHT[name], tmp_path)
    assert audit.ok, str(audit)
    assert not audit.findings


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_conversion_is_named_in_its_layers_alone(name, tmp_path):
    case = WRONG[name]
    audit = audited(case, tmp_path)
    assert tuple(record.code for record in audit.records) == case.codes, str(audit)
    wrong = {record.layer for record in audit.layers if record.verdict != "matches"}
    assert wrong == set(case.layers), str(audit)
    assert case.says in str(audit)
    assert audit.outcome == "differs"
