"""Simulated faults against the same faults put into a model's own code."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from tests.checkpoints.audit.injections import at_kernel, attending, masked, options, rotating, turned
from tests.checkpoints.audit.museum_faults import at, interleaved, values_in_turns
from tests.checkpoints.parity.induction import FOLDER, accuracy, sequences

from spectrope.checkpoints import open_model
from spectrope.checkpoints.parity import ModelRuntime
from spectrope.checkpoints.parity.faults import simulations
from spectrope.checkpoints.parity.observed import divergence
from spectrope.checkpoints.parity.places import places_of
from spectrope.checkpoints.parity.sites import LocalCopy

LENGTH = 80
PROMPTS = sequences(2, LENGTH, seed=5)[0]


def rope(**parameters: Any) -> Callable[..., None]:
    def inject(model: Any, patch: pytest.MonkeyPatch) -> None:
        config = type(model.config)(**(model.config.to_dict() | {"rope_parameters": parameters}))
        model.model.rotary_emb = type(model.model.rotary_emb)(config)

    return inject


def gain(model: Any, patch: pytest.MonkeyPatch) -> None:
    model.model.rotary_emb.attention_scaling = 1.25


def grown(q: Any, k: Any, v: Any) -> Any:
    return q * (1 + 0.3 * torch.log1p(torch.arange(q.shape[2]) // 8))[:, None], k, v


def capped(own: Any, q: Any, k: Any, v: Any, mask: Any, given: Any) -> Any:
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    logits = 2 * torch.tanh(q @ k.mT * given["scaling"] / 2)
    hidden = torch.ones_like(logits[0, 0], dtype=torch.bool).triu(1)
    return (logits.masked_fill(hidden, -torch.inf).softmax(-1) @ v).transpose(1, 2), None


LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
PAIRS = rotating(lambda own, q, k, c, s: (interleaved(q, c, s), interleaved(k, c, s)))
CASES: dict[str, tuple[str, float, Any]] = {
    "base": ("base", 5e4, rope(rope_type="default", rope_theta=5e4)),
    "linear": ("frequencies divided", 3.0, rope(rope_type="linear", rope_theta=1e4, factor=3.0)),
    "yarn": (
        "scaling yarn by {x:.4g} from 64 positions with its attention factor", 4.0,
        rope(rope_type="yarn", rope_theta=1e4, factor=4.0, original_max_position_embeddings=64),
    ),
    "llama3": (
        "scaling llama3 by {x:.4g} from 64", 8.0,
        rope(rope_type="llama3", rope_theta=1e4, factor=8.0, **LLAMA3),
    ),
    "attention factor": ("attention factor {x", 1.25, gain),
    "scale": ("attention factor {x", 2**0.5, options(lambda given: {"scaling": 2 * given["scaling"]})),
    "pairs": ("pairs in the other order", 0.0, PAIRS),
    "sense": ("rotation in the other sense", 0.0, rotating(lambda own, q, k, c, s: own(q, k, c, -s))),
    "still": ("no rotation", 0.0, rotating(lambda own, q, k, c, s: (q, k))),
    "clamped": ("positions stay", 20.0, at(lambda t: t.clamp(max=20))),
    "wrapped": ("positions begin again", 20.0, at(lambda t: t % 20)),
    "growth": ("log(1 + position // 8)", 0.3, at_kernel(grown)),
    "window": ("window of", 16.0, masked(lambda n: (n >= 0) & (n < 16))),
    "both ways": ("queries see later keys", 0.0, masked(lambda n: n.abs() < 999)),
    "values in turn": ("groups of values in turn", 0.0, attending(values_in_turns)),
    "cap": ("cap of logits", 2.0, attending(capped)),
    "values rotated": ("values are rotated", 0.0, at_kernel(lambda q, k, v: (q, k, turned(v)))),
}  # fmt: skip


@pytest.fixture(scope="module")
def local() -> LocalCopy:
    return LocalCopy.of(open_model(FOLDER, dtype="float32"))


@pytest.mark.sampled
@pytest.mark.parametrize("name", CASES)
def test_a_simulation_predicts_what_the_fault_does(name: str, local: LocalCopy):
    words, value, inject = CASES[name]
    places = places_of(LENGTH)
    with pytest.MonkeyPatch.context() as patch:
        other = open_model(FOLDER, dtype="float32")
        inject(other, patch)
        seen = ModelRuntime(other).predict(PROMPTS, places)
    family = next(one for one in simulations(local, LENGTH) if words in one.name)
    with family.put_into(local, value, ()):
        simulated = ModelRuntime(local.model).predict(PROMPTS, places)
    sound = ModelRuntime(local.model).predict(PROMPTS, places)
    assert float(divergence(seen, simulated).max()) < 1e-7
    assert float(divergence(seen, sound).mean()) > 1e-3


def test_every_simulation_runs_and_changes_predictions(local: LocalCopy):
    places = places_of(LENGTH)
    sound = ModelRuntime(local.model).predict(PROMPTS, places)
    for family in simulations(local, LENGTH):
        with family.put_into(local, family.values[len(family.values) // 2], ()):
            found = ModelRuntime(local.model).predict(PROMPTS, places)
        if family.name != "no window":  # The model has none to lose.
            assert float(divergence(sound, found).mean()) > 1e-9, family.name


def test_a_fault_can_be_in_one_layer(local: LocalCopy):
    places = places_of(LENGTH)
    family = next(one for one in simulations(local, LENGTH) if one.name == "no rotation")
    found = []
    for layers in ((), (0,), (1,)):
        with family.put_into(local, 0.0, layers):
            found.append(ModelRuntime(local.model).predict(PROMPTS, places))
    assert all(float(divergence(a, b).mean()) > 1e-3 for a, b in pairwise(found))


def test_the_stored_model_has_induction_heads():
    assert accuracy(open_model(FOLDER, dtype="float32"), seed=12345) > 0.9
