"""A seeded sample of the museum of faults: code, layers and heads of what is found, and sound models pass.

`python -m tests.checkpoints.audit.museum` audits every exhibit.
"""

import random

import pytest
from tests.checkpoints.audit.museum import LENGTH, MUSEUM, NAMES, judged

from spectrope.checkpoints.audit import audit
from spectrope.checkpoints.audit.catalogue import fault

MENDED = ("sines and cosines kept in bfloat16", "frequencies cast to float16")  # once misnamed
SAMPLE = sorted({*random.Random(32).sample(sorted(NAMES), 16), *MENDED})


def test_the_museum_is_wide():
    assert len(NAMES) == len(MUSEUM) >= 60
    assert len({one.family for one in MUSEUM}) >= 12
    assert len({one.thread for one in MUSEUM}) == len(MUSEUM)
    assert len({code for one in MUSEUM for code in one.codes}) >= 15


@pytest.mark.parametrize("name", NAMES)
def test_the_catalogue_cites_the_thread(name):
    one = NAMES[name]
    assert any(one.thread in fault(code).threads for code in one.codes)


@pytest.mark.parametrize("name", SAMPLE)
def test_a_sampled_exhibit_is_named_and_its_sound_model_passes(name):
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
