"""Computed tables of positions: what looked-up vectors are instead of the declared sines and cosines."""

import pytest
import torch
from tests.checkpoints.audit.injections import sinusoidal
from tests.checkpoints.audit.zoo import Variant, build, families

from spectrope.checkpoints.audit import audit

LENGTH = 96


def told(model):
    return [record.message for record in audit(model, length=LENGTH).records]


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
@pytest.mark.parametrize("family", ["xglm", "marian"])
def test_a_rounded_table_is_named_by_its_precision(family, dtype, monkeypatch):
    model = build(Variant(family, families()[family]))
    sinusoidal(lambda table: table.to(getattr(torch, dtype)).to(table))(model, monkeypatch)
    assert all(f"sines and cosines rounded to {dtype} effective" in message for message in told(model))
    assert told(model)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_angles_in_the_precision_of_the_model_are_named(dtype):
    """The library computes the angles of Pegasus-X in the precision of its embeddings."""
    (message,) = told(build(Variant("pegasus_x", families()["pegasus_x"], dtype=dtype)))
    assert f"sines and cosines of angles in {dtype} effective" in message


def test_a_table_of_the_model_s_own_precision_is_no_finding():
    assert not told(build(Variant("xglm", families()["xglm"], dtype="bfloat16")))
