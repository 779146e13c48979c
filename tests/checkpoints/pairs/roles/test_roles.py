"""Each role says yes where it should, and refuses by name where it should not."""

import copy

import pytest
import torch
import transformers
from tests.checkpoints.audit.families import FAMILIES, GROUPED, ROPES, T5, build, llama
from tests.checkpoints.audit.test_far import mistral
from tests.checkpoints.audit.test_zoo import model_of
from tests.checkpoints.pairs.models import (
    HALVES_TO_ADJACENT,
    ROPE,
    cohere_of,
    pair,
    reordered,
    reordered_cohere,
    tuned,
)

import spectrope as sp
from spectrope.core import ConfigError, UnknownNameError


@pytest.fixture(scope="module")
def model():
    return llama(**ROPE)


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
        assert "positional encodings compatible for speculative decoding: no" in str(found)

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


class TestFinetuned:
    def test_tuned_weights_are_compatible_and_their_change_is_told(self, model):
        found = pair(model, tuned(model), role="finetuned")
        assert found.ok
        assert "Queries and keys moved by up to " in found.notes[0]

    def test_a_lost_base_is_refused(self, model):
        wrong = tuned(model)
        wrong.model.rotary_emb.inv_freq *= 0.5
        assert pair(model, wrong, role="finetuned").answer == "no"


def test_in_python_roles_are_checked_too(model):
    with pytest.raises(UnknownNameError, match="unknown role 'copy'"):
        pair(model, model, role="copy")
    with pytest.raises(ConfigError, match="compares two models; got 1"):
        pair(model, role="draft")


@pytest.mark.parametrize("role", ["merge", "finetuned"])
def test_weights_that_are_too_unlike_leave_the_order_of_rows_open(model, role):
    found = pair(model, tuned(model, size=10), role=role)
    assert found.answer == "cannot tell"
    assert "layer 0: the weights do not show the order of the rows of queries" in found.unclear
    assert pair(model, tuned(model), role=role).answer == "yes"


@pytest.mark.parametrize("family", ["deepseek_v3", "smollm3"])
@pytest.mark.parametrize("role", ["merge", "finetuned", "converted"])
def test_rows_that_are_alike_or_zero_are_in_their_places(family, role):
    model = FAMILIES[family]()
    if family == "smollm3":
        model.model.layers[0].self_attn.q_proj.weight.data[:16] = 0.0
    assert pair(model, copy.deepcopy(model), role=role).answer == "yes"


def test_the_name_of_a_single_stack_does_not_matter():
    model = FAMILIES["opt"]()
    for role in ("converted", "merge", "finetuned"):
        assert pair(model.model, copy.deepcopy(model.model.decoder), role=role).answer == "yes"


@pytest.mark.parametrize("role", ["merge", "finetuned", "converted"])
def test_attention_in_other_layers_is_an_obstacle(role):
    kinds = ["conv", "full_attention"]
    models = [build("Lfm2", **GROUPED, layer_types=order) for order in (kinds, kinds[::-1])]
    (reason,) = pair(*models, role=role).reasons
    assert "layers: 1 in" in reason
    with pytest.raises(ConfigError, match="at the same layers; got 1 and 0"):
        sp.diff(*(sp.audit(one, length=48, watch=sp.unwatched) for one in models))


def test_a_draft_with_other_terms_is_refused():
    gpt2, still = FAMILIES["gpt2"](), FAMILIES["smollm3"]()
    still.config.no_rope_layers = [0] * len(still.model.layers)
    for layer in still.model.layers:
        layer.self_attn.use_rope = False
    for target, draft in ((gpt2, still), (still, gpt2)):
        found = pair(target, draft, role="draft")
        assert "absolute term" in {one.what for one in found.obstacles}
    t5, near = (
        build("T5", "ForConditionalGeneration", **T5 | {"relative_attention_max_distance": most})
        for most in (64, 32)
    )
    assert "buckets" in {one.what for one in pair(t5, near, role="draft").obstacles}


def test_a_window_that_ends_beyond_the_audited_length_is_an_obstacle():
    found = pair(mistral(), mistral(sliding_window=2048), role="converted")
    assert found.answer == "no"
    assert found.reasons[0].startswith(
        "layer 0: SPE202 mask: causal window 4096 in the source, causal window"
    )


def test_attention_that_is_not_read_leaves_the_answer_open():
    model = model_of("longt5")
    found = pair(model, model, role="converted")
    assert found.answer == "cannot tell"
    assert any("has attention of a form that is not read" in one for one in found.unclear)


def test_blocks_without_attention_are_named():
    model = model_of("lfm2")
    found = pair(model, model, role="converted")
    assert "Not compared: layers.0." in found.notes
    assert found.notes[-1].startswith("Not compared: ")
    assert "from 48 on" in found.notes[-1] or "from position 48 on" in found.notes[-1]


TABLES = {
    "gpt2": "transformer.wpe",
    "opt": "model.decoder.embed_positions",
    "bert": "bert.embeddings.position_embeddings",
}


@pytest.mark.parametrize("family", TABLES)
@pytest.mark.parametrize("role", ["converted", "finetuned", "merge"])
@pytest.mark.parametrize(("by", "said"), [(1, "those of 1 position earlier"), (-2, "of 2 positions later")])
def test_a_table_that_is_read_at_other_rows_is_an_obstacle(family, role, by, said):
    model = FAMILIES[family]()
    other = copy.deepcopy(model)
    table = other.get_submodule(TABLES[family])
    table.weight.data = table.weight.data.roll(by, 0)
    (reason,) = pair(model, other, role=role).reasons
    assert reason.startswith("embeddings: SPE402 first position")
    assert said in reason


def test_a_conversion_keeps_tables_and_biases_and_training_moves_them():
    model = FAMILIES["gpt2"]()
    other = copy.deepcopy(model)
    other.transformer.wpe.weight.data *= 1.1
    (reason,) = pair(model, other, role="converted").reasons
    assert "embeddings: SPE401 vectors by position" in reason
    assert pair(model, other, role="finetuned").ok
    model = FAMILIES["t5"]()
    other = copy.deepcopy(model)
    for name, weight in other.named_parameters():
        if "relative_attention_bias" in name:
            weight.data = weight.data.roll(1, 0)
    found = pair(model, other, role="converted")
    assert {(one.where.split()[0], one.code) for one in found.obstacles} == {("layer", "SPE401")}
    assert pair(model, model, role="converted").ok


@pytest.mark.parametrize("trained", [1, 2, 3])
def test_training_of_the_first_rows_of_a_smooth_table_is_no_shift(trained):
    model = FAMILIES["gpt2"]()
    table = model.transformer.wpe.weight.data
    angles = torch.arange(1, 7) * torch.arange(len(table))[:, None] * torch.pi / 512
    generator = torch.Generator().manual_seed(trained)
    mixed = torch.randn(12, table.shape[1], generator=generator)
    table.copy_(0.1 * torch.cat([angles.sin(), angles.cos()], 1) @ mixed)
    other = copy.deepcopy(model)
    rows = other.transformer.wpe.weight.data[:trained]
    rows += 0.3 * torch.randn(rows.shape, generator=generator)
    for role in ("finetuned", "merge"):
        assert pair(model, other, role=role).ok, role


def test_a_conversion_may_keep_its_table_at_other_rows():
    """As from BERT, which begins at row 0, to RoBERTa, which begins behind its padding."""
    sizes = {"vocab_size": 64, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2}
    sizes |= {"num_attention_heads": 4, "type_vocab_size": 2}
    source = transformers.BertModel(transformers.BertConfig(**sizes, max_position_embeddings=128)).eval()
    fields = transformers.RobertaConfig(**sizes, max_position_embeddings=130, pad_token_id=1)
    converted = transformers.RobertaModel(fields).eval()
    converted.config.layer_norm_eps = source.config.layer_norm_eps
    weights, name = source.state_dict(), "embeddings.position_embeddings.weight"
    weights[name] = torch.cat([torch.zeros(2, 64), weights[name]])
    converted.load_state_dict(weights, strict=False)
    found = pair(source, converted, role="converted")
    assert found.answer == "yes", str(found)


def test_heads_of_a_conversion_may_be_permuted_with_their_biases():
    model, order = FAMILIES["t5"](), [1, 0, 3, 2]
    other = copy.deepcopy(model)
    for module in other.modules():
        if type(module).__name__ == "T5Attention":
            for one in (module.q, module.k, module.v):
                one.weight.data = one.weight.data.unflatten(0, (4, -1))[order].flatten(0, 1)
            module.o.weight.data = module.o.weight.data.unflatten(1, (4, -1))[:, order].flatten(1, 2)
            if module.has_relative_attention_bias:
                table = module.relative_attention_bias
                table.weight.data = table.weight.data[:, order]
    found = pair(model, other, role="converted")
    assert found.answer == "yes", str(found)
