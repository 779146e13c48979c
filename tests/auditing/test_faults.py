"""Each seeded fault is found, in the layers where it is, and named; nothing else is reported."""

import pytest
from tests.auditing.families import FAMILIES, LENGTH
from tests.auditing.faults import FAULTS

from spectrope.auditing import audit


@pytest.mark.parametrize("name", FAULTS)
def test_the_audit_names_the_layer_and_the_fault(name, monkeypatch):
    fault = FAULTS[name]
    model = FAMILIES[fault.family]()
    assert audit(model, length=LENGTH).ok
    fault.inject(model, monkeypatch)
    found = audit(model, length=LENGTH)
    assert not found.ok
    assert tuple(dict.fromkeys(where for where, _ in found.findings)) == fault.layers
    about = [finding for _, finding in found.findings if finding.what == fault.what]
    assert len(about) >= 1
    assert fault.says in " ".join(map(str, about))
