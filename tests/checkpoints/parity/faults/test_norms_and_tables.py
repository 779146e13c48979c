"""Simulated faults of norms, of absolute positions and of rounded angles, against a model's own code."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest
import torch
import transformers
from tests.checkpoints.parity.induction import FOLDER, sequences
from torch import nn

from spectrope.checkpoints import open_model
from spectrope.checkpoints.parity import ModelRuntime, parity
from spectrope.checkpoints.parity.cause import _converted
from spectrope.checkpoints.parity.faults import simulations
from spectrope.checkpoints.parity.observed import divergence
from spectrope.checkpoints.parity.places import places_of
from spectrope.checkpoints.parity.sites import LocalCopy

LENGTH = 32
PROMPTS, PLACES = sequences(2, LENGTH, seed=5)[0], places_of(LENGTH)
SIZES: dict[str, Any] = {"vocab_size": 48, "pad_token_id": None, "bos_token_id": None, "eos_token_id": None}
LLAMA = SIZES | {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 32}


def built(cls: Any, config: Any) -> Any:
    torch.manual_seed(0)
    model = cls(config).eval()
    for name, weight in model.named_parameters():
        if name.endswith(("q_norm.weight", "k_norm.weight")):
            nn.init.uniform_(weight, 0.5, 2.0)
        elif weight.ndim == 2:
            nn.init.normal_(weight, std=0.3)
    return model


def qwen3() -> Any:
    config = transformers.Qwen3Config(**LLAMA, num_key_value_heads=2, head_dim=8)
    return built(transformers.Qwen3ForCausalLM, config)


def olmo2() -> Any:
    return built(transformers.Olmo2ForCausalLM, transformers.Olmo2Config(**LLAMA))


def gpt2() -> Any:
    config = transformers.GPT2Config(**SIZES, n_embd=32, n_layer=2, n_head=4, n_positions=64)
    return built(transformers.GPT2LMHeadModel, config)


def opt() -> Any:
    given = {"ffn_dim": 32, "word_embed_proj_dim": 32, "max_position_embeddings": 64, "pad_token_id": 1}
    return built(transformers.OPTForCausalLM, transformers.OPTConfig(**LLAMA | given))


def without_norms(model: Any, patch: pytest.MonkeyPatch) -> None:
    for layer in model.model.layers:
        layer.self_attn.q_norm = layer.self_attn.k_norm = nn.Identity()


def norms_last(model: Any, patch: pytest.MonkeyPatch) -> None:
    """The norms' weights are moved behind the rotation, which leaves the RMS as it is."""
    module, gains = import_module(type(model).__module__), []
    for layer in model.model.layers:
        norms = layer.self_attn.q_norm, layer.self_attn.k_norm
        gains.append(tuple(norm.weight.data.clone() for norm in norms))
        for norm in norms:
            norm.weight.data.fill_(1)
    rotate, turn = module.apply_rotary_pos_emb, iter(gains)

    def later(*given: Any, **options: Any) -> Any:
        turned = rotate(*given, **options)
        return tuple(
            x * gain.reshape(1, -1, 1, x.shape[-1]) for x, gain in zip(turned, next(turn), strict=True)
        )

    patch.setattr(module, "apply_rotary_pos_emb", later)


def moved(model: Any, patch: pytest.MonkeyPatch) -> None:
    table = model.transformer.wpe.weight
    table.data = torch.cat([table.data[2:], table.data[-1:].repeat(2, 1)])


def unpositioned(model: Any, patch: pytest.MonkeyPatch) -> None:
    model.transformer.wpe.weight.data.zero_()


def shifted(model: Any, patch: pytest.MonkeyPatch) -> None:
    model.model.decoder.embed_positions.offset = 0


Fault = Callable[[Any, pytest.MonkeyPatch], None]
CASES: dict[str, tuple[Callable[[], Any], Fault, str, float]] = {
    "norms missing": (qwen3, without_norms, "the norm of queries and keys is missing", 0.0),
    "norms missing, of all heads at once": (olmo2, without_norms, "the norm of queries and keys", 0.0),
    "order of norm and rotation": (qwen3, norms_last, "normalised after their rotation", 0.0),
    "the same, of all heads at once": (olmo2, norms_last, "normalised after their rotation", 0.0),
    "no positions": (gpt2, unpositioned, "no absolute positions", 0.0),
    "two rows further": (gpt2, moved, "the first position", 2.0),
    "offset lost": (opt, shifted, "the first position", -2.0),
}


@pytest.mark.parametrize("name", CASES)
def test_a_simulation_predicts_what_the_fault_does(name: str):
    model, inject, words, value = CASES[name]
    other, sound = model(), model()
    with pytest.MonkeyPatch.context() as patch:
        inject(other, patch)
        seen = ModelRuntime(other).predict(PROMPTS, PLACES)
    local = LocalCopy.of(sound)
    family = next(one for one in simulations(local, LENGTH) if words in one.name)
    before = ModelRuntime(sound).predict(PROMPTS, PLACES)
    with family.put_into(local, value, ()):
        simulated = ModelRuntime(sound).predict(PROMPTS, PLACES)
    assert float(divergence(seen, simulated).max()) < 1e-6
    assert float(divergence(seen, before).mean()) > 1e-3
    assert torch.equal(ModelRuntime(sound).predict(PROMPTS, PLACES).logs, before.logs)  # It is taken out.


def test_models_without_such_parts_have_no_such_faults():
    local = LocalCopy.of(open_model(FOLDER, dtype="float32"))
    codes = {code for one in simulations(local, 64) for code in one.codes}
    assert not {"SPE113", "SPE114", "SPE401", "SPE402"} & codes


def test_rounded_angles_are_simulated_in_the_precision_of_the_runtime():
    prompts, places = sequences(2, 128, seed=5)[0], places_of(128)
    other: Any = open_model(FOLDER, dtype="bfloat16")
    rotary = other.model.rotary_emb

    def forward(x: Any, position_ids: Any) -> Any:
        angles = position_ids[..., None].bfloat16() * rotary.inv_freq.bfloat16()
        angles = torch.cat([angles, angles], -1).float()
        return angles.cos().to(x.dtype), angles.sin().to(x.dtype)

    rotary.forward = forward
    seen = ModelRuntime(other).predict(prompts, places)
    copy = _converted(LocalCopy.of(open_model(FOLDER, dtype="float32")), torch.bfloat16)
    family = next(one for one in simulations(copy, 128) if one.name == "angles computed in bfloat16")
    sound = ModelRuntime(copy.model).predict(prompts, places)
    with family.put_into(copy, 0.0, ()):
        simulated = ModelRuntime(copy.model).predict(prompts, places)
    assert float(divergence(seen, simulated).max()) < 1e-6
    assert float(divergence(seen, sound).mean()) > 1e-4


def test_a_model_whose_attention_cannot_be_reached_is_compared_and_said_to_be_so():
    config = transformers.BloomConfig(**SIZES, hidden_size=32, n_layer=1, n_head=4)
    local, other = (built(transformers.BloomForCausalLM, config) for _ in range(2))
    other.transformer.ln_f.weight.data *= 2
    found = parity(ModelRuntime(local), ModelRuntime(other), PROMPTS, local, places=8)
    assert found.answer == "differs"
    assert "no fault could be simulated: its code calls no attention function" in found.verdict
