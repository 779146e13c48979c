"""A seeded sample of other valid configurations: nothing unmodified is accused.

`python -m tests.checkpoints.audit.sweep` audits all of them.
"""

import pytest
from tests.checkpoints.audit.sweep import GENERAL, SPECIAL, TRUE, Edited, ended, variants, word

from spectrope.checkpoints.audit import audit

BY_NAME = {str(one): one for one in variants()}
MENDED = (  # once accused
    "mpt: factor 0.3",
    "ministral3: temperature",
    "hunyuan_v1_dense: no norms",
    "recurrent_gemma: window 9",
    "hy_v3: epsilon of 1e-2",
    "deepseek_v4: half rotates",
    "minimax: window of 7",
    "afmoe: windows in turn",
    "kolibri1: windows in turn",
    "exaone_moe: full layers alone",
)


def test_the_sweep_is_wide():
    assert len(BY_NAME) > 300
    assert len({one.family for one in BY_NAME.values()}) > 100
    assert {one.name for one in BY_NAME.values()} >= GENERAL.keys()
    assert set(SPECIAL) <= {one.family for one in BY_NAME.values()}


@pytest.mark.sampled
@pytest.mark.parametrize("name", MENDED)
def test_a_configuration_that_was_misread_raises_no_alarm(name):
    family, _, edit = name.partition(": ")
    told, why = word(BY_NAME.get(name) or Edited(family, edit, GENERAL[edit]))
    assert told in ("ok", "partly"), why


@pytest.mark.sampled(most=16)
@pytest.mark.parametrize("name", BY_NAME)
def test_a_configuration_is_neither_accused_nor_crashes(name):
    assert word(BY_NAME[name])[0] in ("ok", "partly", "refused", "not built", "true finding")


@pytest.mark.parametrize("name", TRUE)
def test_a_true_finding_on_unmodified_code_is_reported(name):
    assert word(BY_NAME[name]) == ("true finding", TRUE[name])


def test_what_differs_would_be_called_a_false_alarm():
    from tests.checkpoints.audit.sweep import build

    model = build(BY_NAME["gemma: heads of 24"])
    model.config.rope_parameters["rope_theta"] = 5.0
    told, why = ended(audit(model, length=32))
    assert told == "false alarm"
    assert "base: 5 declared, 10000 effective" in why
