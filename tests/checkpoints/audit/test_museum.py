"""A seeded sample of the museum of faults: code, layers and heads of what is found, and sound models pass.

`python -m tests.checkpoints.audit.museum` audits every exhibit.
"""

import pytest
import torch
from tests.checkpoints.audit.museum import LENGTH, MUSEUM, NAMES, Exhibit, judged, of
from tests.checkpoints.audit.museum_faults import sloped
from tests.checkpoints.audit.zoo import in_precision

from spectrope.checkpoints.audit import audit
from spectrope.checkpoints.audit.catalogue import fault

# Once misnamed in bfloat16 alone.
LOW = (
    Exhibit("two coordinates fewer", "", "gptj", of("105"),
            declared={"rotary_dim": 8}, applied={"rotary_dim": 6}),
    Exhibit("two coordinates more", "", "codegen", of("105"),
            declared={"rotary_dim": 8}, applied={"rotary_dim": 10}),
    Exhibit("a head without its slope", "", "bloom", of("301"),
            sloped(lambda m: m * (torch.arange(4) > 0)), heads=(0,)),
    NAMES["sines for cosines"],
)  # fmt: skip


def test_the_museum_is_wide():
    assert len(NAMES) == len(MUSEUM) >= 60
    assert len({one.family for one in MUSEUM}) >= 12
    assert len({one.thread for one in MUSEUM}) == len(MUSEUM)
    assert len({code for one in MUSEUM for code in one.codes}) >= 15


@pytest.mark.parametrize("name", NAMES)
def test_the_catalogue_cites_the_thread(name):
    one = NAMES[name]
    assert any(one.thread in fault(code).threads for code in one.codes)


@pytest.mark.sampled(most=12)
@pytest.mark.parametrize("name", NAMES)
def test_an_exhibit_is_named_and_its_sound_model_passes(name):
    assert audit(NAMES[name].sound(), length=LENGTH).findings == []
    word, why = judged(NAMES[name])
    assert word == "named", why


def test_a_fault_that_is_not_there_counts_as_missed():
    sound = audit(NAMES["window without its last key"].sound(), length=LENGTH)
    assert NAMES["window without its last key"].judged(sound) == "missed"
    assert NAMES["base fixed in a converter"].judged(sound) == "missed"


def test_rounded_frequencies_and_tables_are_told_by_their_precision():
    assert "rounded to float16" in judged(NAMES["frequencies cast to float16"])[1]
    assert "bfloat16 sines and cosines rounded" in judged(NAMES["sines and cosines kept in bfloat16"])[1]


@pytest.mark.sampled
@pytest.mark.parametrize("one", LOW, ids=lambda one: one.name)
def test_in_bfloat16_faults_are_named_as_in_float32(one, monkeypatch):
    assert audit(in_precision(one.sound(), "bfloat16"), length=LENGTH).ok
    model = in_precision(one.model(monkeypatch), "bfloat16")
    assert one.judged(audit(model, length=LENGTH)) == "named"
