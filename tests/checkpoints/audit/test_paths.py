"""Decoding from a cache, padding and packing apply the kernels of a plain forward pass, or are found out."""

import pytest
from tests.checkpoints.audit.families import FAMILIES, GPT2, build

from spectrope.checkpoints.audit import audit
from spectrope.checkpoints.commands.audit import reasons

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
    assert {record.verdict for record in found.paths} == {"matches"}
    paths = {record.path for record in found.paths}
    assert "right padding" in paths
    assert ("cached decoding" in paths) == (family != "bert")
    assert ("packed sequences" in paths) == (family not in UNPACKED)


@pytest.mark.parametrize("positions", [8, 16, 31])
def test_paths_are_no_longer_than_the_model_s_positions(positions):
    model = build("GPT2", "LMHeadModel", **GPT2 | {"n_positions": positions})
    found = audit(model, paths=True)
    assert [record.verdict for record in found.paths] == ["matches"] * 4


def test_a_path_that_the_model_refuses_is_one_of_which_nothing_can_be_told(monkeypatch):
    model = FAMILIES["gpt2"]()

    def refuse(**_):
        raise NotImplementedError("no cache here\nand more")

    monkeypatch.setattr(model, "generate", refuse)
    found = audit(model, length=32, paths=True)
    assert {record.path: record.verdict for record in found.paths} == {
        "cached decoding": "cannot tell",
        "left padding": "cannot tell",
        "right padding": "matches",
        "packed sequences": "matches",
    }
    assert ("path left padding", "NotImplementedError: no cache here") in reasons(found)
    assert not found.ok
