"""Decoding from a cache, padding and packing apply the kernels of a plain forward pass, or are found out."""

import pytest
from tests.auditing.families import FAMILIES

from spectrope.auditing import audit

UNPACKED = {
    "opt",
    "bert",
    "bloom",
    "bloom-6-heads",
    "mpt",
    "mpt-6-heads",
    "falcon-alibi",
    "falcon-rope",
    "t5",
    "bart",
}


@pytest.mark.parametrize("family", FAMILIES)
def test_every_path_of_an_unmodified_model_agrees(family):
    found = audit(FAMILIES[family](), length=32, paths=True)
    assert [(name, str(finding)) for name, finding in found.findings] == []
    paths = {record.path for record in found.paths}
    assert "right padding" in paths
    assert ("cached decoding" in paths) == (family != "bert")
    assert ("packed sequences" in paths) == (family not in UNPACKED)
