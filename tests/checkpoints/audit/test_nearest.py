"""Schedules that are applied in the place of the declared one are named."""

import pytest
from tests.checkpoints.audit.families import GROUPED, LENGTH, ROPES, build

from spectrope.checkpoints.audit import audit

LONG = ROPES["longrope"]
LLAMA3 = {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0}


def applying(declared, applied):
    """A model that declares one schedule and turns by the other."""
    model, other = (
        build("Llama", "ForCausalLM", **GROUPED, rope_parameters=one) for one in (declared, applied)
    )
    model.model.rotary_emb = other.model.rotary_emb
    return model


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("declared", "changes", "words"),
    [
        (
            "yarn",
            {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0},
            "llama3 by the declared",
        ),
        ("yarn", {"original_max_position_embeddings": 16}, "yarn with original length 16"),
        ("yarn", {"rope_type": "default"}, "no scaling"),
        ("llama3", {"original_max_position_embeddings": 128}, "llama3 with original length 128"),
        ("llama3", {"rope_type": "linear"}, "linear by the declared parameters"),
        ("linear", {"factor": 8.0}, "linear with factor 8"),
        ("linear", {"rope_type": "default"}, "no scaling"),
        (
            "longrope",
            {"short_factor": LONG["long_factor"], "long_factor": LONG["short_factor"]},
            "longrope with short_factor and long_factor swapped",
        ),
    ],
)
def test_the_schedule_applied_is_named(declared, changes, words):
    records = audit(applying(ROPES[declared], ROPES[declared] | changes), length=LENGTH).records
    named = [one for one in records if one.code == "SPE102"]
    assert {one.layer for one in named} == {0, 1}
    assert all(
        f"all pairs are those of {words}" in one.message and "residual" in one.message for one in named
    )


def test_frequencies_of_no_known_schedule_are_called_none():
    model = applying(ROPES["linear"], ROPES["linear"])
    model.model.rotary_emb.inv_freq[3] *= 1.3
    records = audit(model, length=LENGTH).records
    assert records
    assert not [one for one in records if "all pairs are those of" in one.message]
