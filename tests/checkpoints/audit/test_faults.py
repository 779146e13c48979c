"""Each seeded fault is found, in the layers where it is, and named; nothing else is reported."""

from pathlib import Path

import pytest
from tests.checkpoints.audit.families import FAMILIES, LENGTH
from tests.checkpoints.audit.faults import FAULTS, SERVING_FAULTS, detect, row

from spectrope.checkpoints.audit import audit

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "audit.md"


@pytest.mark.sampled
@pytest.mark.parametrize("name", FAULTS | SERVING_FAULTS)
def test_the_audit_names_the_layer_and_the_fault(name, monkeypatch):
    fault = (FAULTS | SERVING_FAULTS)[name]
    found = detect(name, monkeypatch)
    assert not found.ok
    assert tuple(dict.fromkeys(where for where, _ in found.findings)) == fault.layers
    about = [str(finding) for _, finding in found.findings if finding.what == fault.what]
    assert fault.says in " ".join(about)
    assert row(name, found) in PAGE.read_text()


@pytest.mark.parametrize("name", SERVING_FAULTS)
def test_a_fault_in_one_path_alone_needs_that_path(name, monkeypatch):
    model = FAMILIES[SERVING_FAULTS[name].family]()
    SERVING_FAULTS[name].inject(model, monkeypatch)
    assert audit(model, length=LENGTH, serving_modes=False).ok
