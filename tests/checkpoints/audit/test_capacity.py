"""Audits that would not fit into memory are refused before they compute.

The estimate extrapolates from 157 positions. Here it is compared with the tensors that are really allocated
at a larger length. `python -m benchmarks.audit_memory` compares it with resident memory, at 1,024 to 8,192
positions of six families; the stored ratios lie between 0.96 and 1.30.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.checkpoints.audit.families import BLOOM, GPT2, T5, build, llama

from spectrope import audit
from spectrope.checkpoints.adapters import declared_config, evaluating
from spectrope.checkpoints.audit import capacity
from spectrope.checkpoints.audit.fields import Declaration
from spectrope.checkpoints.audit.probe import BothProbes
from spectrope.checkpoints.probes.constant_content import attention_modules
from spectrope.cli import main
from spectrope.core import ConfigError, UnsupportedError, growth, unwatched

CPU = torch.device("cpu")
LENGTH = 700
LINEAR: dict[str, Any] = {**BLOOM}
ENCODER: dict[str, Any] = {**T5}
NARROW: dict[str, Any] = {**GPT2}
WIDE: dict[str, Any] = NARROW | {"n_positions": LENGTH}
MODELS: dict[str, Callable[[], Any]] = {
    "rotation": lambda: llama(max_position_embeddings=LENGTH),
    "table": lambda: build("GPT2", "LMHeadModel", **WIDE),
    "linear bias": lambda: build("Bloom", **LINEAR),
    "bucketed bias": lambda: build("T5", "EncoderModel", **ENCODER),
}


@pytest.fixture
def scarce(monkeypatch):
    """A machine with 4 MiB of memory."""
    monkeypatch.setattr(capacity, "available_memory", lambda device: 2**22)


@pytest.mark.sampled
@pytest.mark.parametrize("family", MODELS)
def test_the_estimate_is_near_what_is_allocated_at_a_larger_length(family):
    model = MODELS[family]()
    inner = model.base_model
    probe = BothProbes(model, inner, Declaration(**declared_config(model)), 1e-7, 2, 0)
    with evaluating(model):
        modules = attention_modules(inner)
        predicted = growth.peak_growth(lambda n: probe.measured(modules[:1], n, exercised=False)).at(LENGTH)
        with growth._Allocations() as allocations:
            probe.measured(modules, LENGTH, exercised=False)
    real = max(map(sum, allocations.moments[CPU]))
    assert predicted[CPU] == pytest.approx(real, rel=0.25)


def test_a_length_that_does_not_fit_is_refused_with_the_largest_that_does(scarce):
    model: Any = llama(max_position_embeddings=8192)
    with pytest.raises(ConfigError, match=r"8192 positions need about 0\.9 GiB") as refused:
        audit(model, length=8192, watch=unwatched)
    text = str(refused.value)
    assert text.startswith("an audit's length must fit into memory; ")
    assert "\n" not in text
    assert "(cpu), and 0.0 GiB are available. The largest length that fits is " in text
    assert text.endswith("the audit also probes positions beyond it, up to the declared length.")


def test_the_length_that_is_offered_is_accepted(monkeypatch):
    monkeypatch.setattr(capacity, "available_memory", lambda device: 2**25)
    model: Any = llama(max_position_embeddings=8192)
    with pytest.raises(ConfigError, match="The largest length that fits is") as refused:
        audit(model, length=8192, watch=unwatched)
    offered = int(str(refused.value).partition("fits is ")[2].partition(";")[0])
    assert 1024 < offered < 8192
    assert audit(model, length=offered, watch=unwatched, serving_modes=False, reach=False).length == offered


def test_the_command_ends_with_2_and_one_line(scarce, tmp_path, capsys):
    saved: Any = llama(max_position_embeddings=8192)
    saved.save_pretrained(tmp_path)
    capsys.readouterr()
    assert main(["audit", str(tmp_path), "--length", "8192"]) == 2
    error = capsys.readouterr().err
    assert len(error.strip().splitlines()) == 1
    assert "an audit's length must fit into memory; 8192 positions" in error


def test_the_default_length_is_not_checked(scarce):
    assert audit(llama(), length=capacity.UNCHECKED, watch=unwatched, serving_modes=False, reach=False).ok


def test_a_model_that_does_not_run_at_the_small_length_gives_its_own_reason(scarce):
    with pytest.raises(UnsupportedError, match="its configuration gives it 128 positions"):
        audit(build("GPT2", "LMHeadModel", **NARROW), length=1024, watch=unwatched)
