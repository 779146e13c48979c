"""Pairs of checkpoints: each role says yes where it should, and refuses by name where it should not."""

import copy
import json
import warnings

import pytest
import torch
import transformers
from tests.checkpoints.audit.families import FAMILIES, GROUPED, ROPES, build, llama

import spectrope as sp
from spectrope.cli import BAD_INPUT, main
from spectrope.console.terminal import console
from spectrope.core import ConfigError, UnknownNameError

LENGTH = 48
ROPE = {"rope_parameters": ROPES["default"]}


def pair(*models, role):
    return sp.compatible(*models, role=role, length=LENGTH, watch=sp.unwatched)


@pytest.fixture(scope="module")
def model():
    return llama(**ROPE)


def tuned(model, size=0.02, seed=1):
    """The model with its weights a little off, as further training leaves them."""
    other = copy.deepcopy(model)
    generator = torch.Generator().manual_seed(seed)
    for weight in other.parameters():
        weight.data += size * weight.data.std() * torch.randn(weight.shape, generator=generator)
    return other


def reordered(model, order, names=("q_proj", "k_proj"), layers=(0, 1)):
    """The model with rows of projections in another order within each head."""
    other = copy.deepcopy(model)
    for layer in layers:
        for name in names:
            projection = getattr(other.model.layers[layer].self_attn, name)
            rows = projection.weight.data.unflatten(0, (-1, len(order)))
            projection.weight.data = rows[:, order].flatten(0, 1).contiguous()
    return other


HALVES_TO_ADJACENT = torch.arange(16).view(2, 8).T.flatten()


class TestDraft:
    def test_another_size_with_the_same_base_is_compatible(self, model):
        draft = llama(hidden_size=32, num_attention_heads=4, num_hidden_layers=1, **ROPE)
        assert pair(model, draft, role="draft").answer == "yes"

    @pytest.mark.parametrize("sizes", [{}, {"hidden_size": 32, "num_hidden_layers": 1}])
    def test_another_base_is_refused_by_name(self, model, sizes):
        draft = llama(rope_parameters=ROPES["default"] | {"rope_theta": 1e4}, **sizes)
        found = pair(model, draft, role="draft")
        assert found.answer == "no"
        assert found.reasons[0] == "layer 0: SPE101 base: 500000 in the target, 10000 in the draft"
        assert "compatible for speculative decoding: no" in str(found)

    def test_yarn_that_fell_back_to_another_scaling_is_refused(self):
        target, draft = llama(rope_parameters=ROPES["yarn"]), llama(rope_parameters=ROPES["linear"])
        found = pair(target, draft, role="draft")
        assert {one.code for one in found.obstacles} == {"SPE102"}

    def test_each_layer_may_be_like_any_of_the_target(self):
        target = FAMILIES["gemma3"]()
        assert pair(target, target, role="draft").ok

    def test_sizes_that_differ_are_named(self, model):
        draft = llama(vocab_size=32, max_position_embeddings=64, **ROPE)
        found = pair(model, draft, role="draft")
        assert [one.what for one in found.obstacles] == ["vocabulary", "trained length"]
        assert {one.code for one in found.obstacles} == {"SPE712"}

    def test_a_family_that_is_not_known_cannot_be_told(self, model):
        unknown = FAMILIES["bloom"]()
        build_alibi = unknown.transformer.h[0].self_attention
        build_alibi.register_forward_pre_hook(
            lambda module, args, given: (args, given | {"alibi": given["alibi"] ** 2}), with_kwargs=True
        )
        found = pair(unknown, unknown, role="draft")
        assert found.answer == "cannot tell"
        assert "applies no encoding that is known here" in found.unclear[0]


class TestMerge:
    def test_tuned_models_and_their_mean_are_compatible(self, model):
        first, second = tuned(model, seed=1), tuned(model, seed=2)
        mean = copy.deepcopy(model)
        for out, a, b in zip(mean.parameters(), first.parameters(), second.parameters(), strict=True):
            out.data = (a.data + b.data) / 2
        assert pair(first, second, mean, role="merge").answer == "yes"

    def test_rows_in_another_order_are_named(self, model):
        found = pair(tuned(model), reordered(model, HALVES_TO_ADJACENT), role="merge")
        assert found.answer == "no"
        assert found.reasons[0] == (
            "layer 0: SPE711 rows of queries: their order in the first input, "
            "permuted from halves to adjacent pairs in another input"
        )
        assert len(found.obstacles) == 4

    def test_another_base_of_the_result_is_named(self, model):
        wrong = llama(rope_parameters=ROPES["default"] | {"rope_theta": 1e4})
        found = pair(model, tuned(model), wrong, role="merge")
        assert {one.other for one in found.obstacles} == {"another input (2)"}
        assert "base: 500000 in the first input, 10000 in another input (2)" in found.reasons[0]

    def test_heads_in_another_order_are_named(self, model):
        other = copy.deepcopy(model)
        weight = other.model.layers[1].self_attn.q_proj.weight
        weight.data = weight.data.unflatten(0, (4, 16))[[1, 0, 3, 2]].flatten(0, 1)
        [one] = pair(model, other, role="merge").obstacles
        assert (one.where, one.what, one.second, one.note) == (
            "layer 1",
            "order of heads",
            "1, 0, 3, 2",
            "of queries",
        )

    def test_other_sizes_are_named_and_nothing_else(self, model):
        found = pair(model, llama(num_hidden_layers=1, **ROPE), role="merge")
        assert [one.what for one in found.obstacles] == ["layers"]

    def test_learned_positions_may_differ(self):
        model = FAMILIES["opt"]()
        assert pair(model, tuned(model), role="merge").ok


def cohere_of(model):
    """A Cohere, whose code pairs adjacent coordinates, with the projections of a Llama."""
    other = build("Cohere", **(GROUPED | {"rope_parameters": ROPES["default"]}))
    for ours, theirs in zip(other.model.layers, model.model.layers, strict=True):
        for name in ("q_proj", "k_proj"):
            getattr(ours.self_attn, name).weight.data = getattr(theirs.self_attn, name).weight.data.clone()
    return other


class TestConverted:
    def test_a_copy_is_compatible(self, model):
        assert pair(model, copy.deepcopy(model), role="converted").answer == "yes"

    def test_a_copy_in_bfloat16_is(self, model):
        low = copy.deepcopy(model).to(torch.bfloat16)
        low.model.rotary_emb = copy.deepcopy(model.model.rotary_emb)
        assert pair(model, low, role="converted").answer == "yes"

    def test_permuted_rows_without_the_pairing_are_found_and_named(self, model):
        found = pair(model, reordered(model, HALVES_TO_ADJACENT, layers=(1,)), role="converted")
        assert [(one.where, one.code) for one in found.obstacles] == [("layer 1", "SPE711")] * 2
        assert "permuted from halves to adjacent pairs" in found.reasons[0]

    def test_rows_permuted_as_the_other_pairing_asks_are_compatible(self, model):
        found = pair(model, reordered_cohere(model), role="converted")
        assert found.answer == "yes", str(found)
        assert "layer 0: rows of queries and keys permuted from halves to adjacent pairs" in found.notes[0]

    def test_another_pairing_without_permuted_rows_is_refused(self, model):
        found = pair(model, cohere_of(model), role="converted")
        assert {one.code for one in found.obstacles} == {"SPE104"}
        assert "layer 0: rows were not permuted for the other pairing." in found.notes

    def test_lost_weights_are_named(self, model):
        other = copy.deepcopy(model)
        other.model.layers[1].self_attn.k_proj.weight.data.normal_(std=0.02)
        [one] = pair(model, other, role="converted").obstacles
        assert (one.where, one.code) == ("layer 1", "SPE713")

    def test_another_base_is_named(self, model):
        found = pair(model, llama(rope_parameters=ROPES["default"] | {"rope_theta": 1e4}), role="converted")
        assert {one.code for one in found.obstacles} == {"SPE101"}


def reordered_cohere(model):
    return reordered(cohere_of(model), HALVES_TO_ADJACENT)


class TestFinetuned:
    def test_tuned_weights_are_compatible_and_their_change_is_told(self, model):
        found = pair(model, tuned(model), role="finetuned")
        assert found.ok
        assert "Queries and keys moved by up to " in found.notes[0]

    def test_a_lost_base_is_refused(self, model):
        wrong = tuned(model)
        wrong.model.rotary_emb.inv_freq *= 0.5
        assert pair(model, wrong, role="finetuned").answer == "no"


@pytest.fixture
def folders(tmp_path, model, monkeypatch):
    """Checkpoints and an adapter as folders."""
    monkeypatch.setattr(console, "width", 200)
    model.save_pretrained(tmp_path / "base")
    other = llama(rope_parameters=ROPES["default"] | {"rope_theta": 1e4})
    other.save_pretrained(tmp_path / "other")
    adapter(tmp_path, tmp_path / "base")
    return tmp_path


def adapter(root, base):
    """An adapter of the queries' projections that says on which base it was trained."""
    import peft

    model = transformers.AutoModelForCausalLM.from_pretrained(root / "base")
    config = peft.LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of peft's use of transformers
        peft.get_peft_model(model, config).save_pretrained(root / "adapter")
    path = root / "adapter" / "adapter_config.json"
    fields = json.loads(path.read_text())
    path.write_text(json.dumps(fields | {"base_model_name_or_path": str(base)}))


def test_an_adapter_fits_the_base_that_it_was_trained_on(folders, capsys):
    assert main(("diff", str(folders / "base"), str(folders / "adapter"), "--role", "adapter")) == 0
    out = capsys.readouterr().out
    assert "compatible for use with its base: yes" in out
    assert "Queries and keys moved by up to " in out


def test_an_adapter_of_another_base_is_refused_by_name(folders, capsys):
    adapter(folders, folders / "other")
    assert main(("diff", str(folders / "base"), str(folders / "adapter"), "--role", "adapter")) == 1
    told = " ".join(capsys.readouterr().out.split())
    assert (
        f"base: 500000 in {folders / 'base'}, 10000 in {folders / 'other'}, on which it was trained" in told
    )


def test_an_adapter_that_does_not_fit_is_refused_in_one_line(folders, capsys):
    llama(hidden_size=32, **ROPE).save_pretrained(folders / "small")
    assert main(("diff", str(folders / "small"), str(folders / "adapter"), "--role", "adapter")) == BAD_INPUT
    assert "does not fit its base: " in capsys.readouterr().err


def test_pickled_adapters_and_megatron_are_refused(folders, capsys):
    path = folders / "adapter" / "adapter_config.json"
    fields = json.loads(path.read_text())
    path.write_text(json.dumps(fields | {"megatron_config": {"a": 1}, "megatron_core": "antigravity"}))
    arguments = ("diff", str(folders / "base"), str(folders / "adapter"), "--role", "adapter")
    assert main(arguments) == BAD_INPUT
    assert "asks for Megatron" in capsys.readouterr().err
    (folders / "adapter" / "adapter_model.safetensors").rename(folders / "adapter" / "adapter_model.bin")
    assert main(arguments) == BAD_INPUT
    assert "save the adapter as safetensors" in capsys.readouterr().err


def test_a_draft_is_refused_on_the_command_line(folders, capsys):
    assert (
        main(("diff", str(folders / "base"), str(folders / "other"), "--role", "draft", "--length", "48"))
        == 1
    )
    out = capsys.readouterr().out
    assert f"SPE101 base: 500000 in {folders / 'base'}, 10000 in {folders / 'other'}" in " ".join(out.split())
    assert "compatible for speculative decoding: no" in out
    assert main(("diff", str(folders / "base"), str(folders / "base"), "--role", "draft", "--json")) == 0
    assert json.loads(capsys.readouterr().out)["answer"] == "yes"


def test_the_inputs_of_a_merge_and_its_result_are_compared(folders, capsys):
    base, other = str(folders / "base"), str(folders / "other")
    assert main(("diff", base, base, "--more", base, other, "--role", "merge", "--length", "48")) == 1
    assert "compatible for merging: no" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("base", "base", "--role", "dratf"), "unknown role 'dratf'; did you mean draft"),
        (("base", "base", "--more", "base"), "--more goes with --role merge."),
        (("base", "base", "--more", "base", "--role", "draft"), "role 'draft' compares two models; got 3."),
        (("base", "other", "--role", "adapter"), "holds no adapter_config.json; --role adapter takes a base"),
    ],
)
def test_a_mistake_gets_one_line(folders, capsys, arguments, message):
    given = [str(folders / one) if one in ("base", "other") else one for one in arguments]
    assert main(("diff", *given)) == BAD_INPUT
    assert message in capsys.readouterr().err


def test_in_python_roles_are_checked_too(model):
    with pytest.raises(UnknownNameError, match="unknown role 'copy'"):
        pair(model, model, role="copy")
    with pytest.raises(ConfigError, match="compares two models; got 1"):
        pair(model, role="draft")
