"""Own models: a minimal GPT and torch's own encoder, audited, ablated and measured like any other."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tests.checkpoints.adapters.own_models import (
    HEADS,
    LENGTH,
    VOCABULARY,
    WIDTH,
    MiniGPT,
    Sloped,
    TorchEncoder,
    turned,
)
from torch import nn

import spectrope as sp
from spectrope.checkpoints.ablation.show import ablate_model
from spectrope.checkpoints.ablation.zeroed import zeroed_heads
from spectrope.checkpoints.adapters.own import OwnModel
from spectrope.checkpoints.adapters.own_fields import declared_fields
from spectrope.checkpoints.adapters.record import einsum_operands
from spectrope.checkpoints.adapters.torch_attention import multi_head_forward
from spectrope.checkpoints.audit import audit
from spectrope.checkpoints.audit.declaration import declared_layer
from spectrope.checkpoints.audit.fields import Declaration
from spectrope.checkpoints.language import task_sequences
from spectrope.core.errors import ConfigError, UnknownNameError, UnsupportedError
from spectrope.encodings import (
    ALiBi,
    DynamicNTK,
    Geometric,
    Learned,
    Linear,
    Llama3,
    RoPE,
    YaRN,
    alibi_slopes,
)

HEAD_DIM = WIDTH // HEADS


def own(model, **options):
    return OwnModel(model.eval(), **{"vocabulary": VOCABULARY, "max_length": LENGTH, **options})


def rope(base):
    return RoPE.Config(head_dim=HEAD_DIM, pairs="halves", schedule=Geometric(base=base))


def tokens(n=6, length=12):
    return torch.randint(0, VOCABULARY, (n, length), generator=torch.Generator().manual_seed(1))


@pytest.fixture(autouse=True)
def seeded():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


class TestAudit:
    @pytest.mark.parametrize("how", ["sdpa", "matmul", "einsum"])
    def test_a_minimal_gpt_matches_what_it_declares(self, how):
        found = audit(own(MiniGPT(how, base=500.0), encoding=rope(500.0)))
        assert found.ok
        assert [layer.effective.describe() for layer in found.layers] == ["rotary, base 500"] * 2
        assert {str(layer.effective.mask) for layer in found.layers} == {"causal"}
        assert (found.length, found.model) == (LENGTH, "MiniGPT")

    def test_another_base_is_found(self):
        found = audit(own(MiniGPT(base=500.0), encoding=rope(10_000.0)))
        assert [layer.verdict for layer in found.layers] == ["differs", "differs"]
        assert str(found.layers[0].findings[0]) == "base: 10000 declared, 500 effective"

    def test_a_missing_rotation_is_found(self):
        found = audit(own(MiniGPT(), encoding=rope(500.0)))
        assert [layer.verdict for layer in found.layers] == ["differs", "differs"]

    def test_nothing_declared_is_nothing_judged(self):
        found = audit(own(MiniGPT(base=500.0)))
        assert [layer.verdict for layer in found.layers] == ["undeclared", "undeclared"]
        assert found.layers[0].effective.describe() == "rotary, base 500"

    def test_a_name_alone_takes_the_width_of_the_heads(self):
        found = audit(own(MiniGPT(base=10_000.0), encoding="rope"))
        assert {one.what for _, one in found.findings} == {"pairing"}  # A name stands for adjacent pairs.
        assert found.layers[0].declared.turning.head_dim == HEAD_DIM

    @pytest.mark.parametrize("encoding", ["alibi", ALiBi.Config(n_heads=HEADS)])
    def test_a_name_alone_takes_the_number_of_heads(self, encoding):
        assert audit(own(Sloped(), encoding=encoding)).ok

    @pytest.mark.parametrize(
        ("encoding", "size"),
        [(RoPE.Config(head_dim=16), "head_dim 16"), (ALiBi.Config(n_heads=8), "num_attention_heads 8")],
    )
    def test_sizes_of_other_heads_are_refused(self, encoding, size):
        with pytest.raises(ConfigError, match=rf"OwnModel\.encoding declares {size}, but that of .* is"):
            audit(own(MiniGPT(base=500.0), encoding=encoding))

    @pytest.mark.parametrize(
        "fields",
        [
            {"rope_theta": 500.0},
            {"rope_theta": 500.0, "head_dim": HEAD_DIM},
            {"rope_theta": 500.0, "hidden_size": HEADS * HEAD_DIM},
            {"rotary_emb_base": 500.0, "rope_scaling": None},
            {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}},
        ],
    )
    def test_fields_of_either_layout_declare_a_base(self, fields):
        assert audit(own(MiniGPT(base=500.0), encoding=fields)).ok
        found = audit(own(MiniGPT(base=10_000.0), encoding=fields))
        assert str(found.layers[0].findings[0]) == "base: 500 declared, 10000 effective"

    def test_fields_that_contradict_each_other_are_found(self):
        fields = {"rope_theta": 500.0, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}
        found = audit(own(MiniGPT(base=10_000.0), encoding=fields))
        assert {one.code for _, one in found.findings} == {"SPE601"}
        assert {one.what for _, one in found.findings} == {"the configuration declares two bases"}

    def test_fields_alone_take_the_number_of_heads(self):
        assert audit(own(Sloped(), encoding={"alibi": True})).ok
        assert audit(own(Sloped(), encoding={"alibi": True, "num_attention_heads": None})).ok

    @pytest.mark.parametrize("base", [500, np.int64(500), np.float32(500.0)])
    def test_any_number_is_a_base(self, base):
        fields = {"rope_theta": base, "head_dim": None}
        assert audit(own(MiniGPT(base=500.0), encoding=fields)).ok

    @pytest.mark.parametrize("name", ["rope_theta", "rotary_emb_base", "rope_local_base_freq"])
    def test_a_base_for_each_layer_is_refused(self, name):
        with pytest.raises(ConfigError, match=rf"OwnModel.encoding: {name} must be one number; got \[500"):
            own(MiniGPT(base=500.0), encoding={name: [500.0, 500.0]})

    @pytest.mark.parametrize("table", [True, False])
    def test_a_learned_table_is_expected_where_it_is_declared(self, table):
        found = audit(own(MiniGPT(table=table), encoding="learned"))
        assert [one.verdict for one in found.absolutes] == ["matches" if table else "differs"]
        assert [layer.verdict for layer in found.layers] == ["matches", "matches"]

    @pytest.mark.parametrize("options", [{}, {"causal": True}, {"norm_first": True}])
    def test_torchs_own_encoder(self, options):
        found = audit(own(TorchEncoder(**options), encoding="learned"))
        assert found.ok
        assert found.absolutes[0].table == "model.positions"
        mask = "causal" if options.get("causal") else "bidirectional"
        assert {str(layer.effective.mask) for layer in found.layers} == {mask}

    def test_a_rotation_slipped_into_torchs_encoder_is_found(self):
        model = TorchEncoder()

        def rotating(module, query, key, value, **options):
            q, k, v = (
                F.linear(x, w, b).unflatten(-1, (HEADS, -1)).transpose(1, 2)
                for x, w, b in zip(
                    (query, key, value),
                    module.in_proj_weight.chunk(3),
                    module.in_proj_bias.chunk(3),
                    strict=True,
                )
            )
            heads = F.scaled_dot_product_attention(turned(q, 100.0), turned(k, 100.0), v)
            return module.out_proj(heads.transpose(1, 2).flatten(2)), None

        found = audit(own(model, encoding="learned", forwards={nn.MultiheadAttention: rotating}))
        assert [layer.verdict for layer in found.layers] == ["differs", "differs"]
        assert found.layers[0].effective.turning is not None


def test_the_vocabulary_is_seen_or_asked_for():
    assert OwnModel(MiniGPT()).config.vocab_size == VOCABULARY
    with pytest.raises(ConfigError, match="needs vocabulary=, the number of token ids: no sizes"):
        OwnModel(nn.Linear(2, 2))


class TestAblation:
    @pytest.mark.parametrize("model", [MiniGPT, TorchEncoder], ids=lambda model: model.__name__)
    def test_the_sweep_is_what_silencing_by_hand_costs(self, model):
        wrapped = own(model(), mask_token=1)
        result = ablate_model(wrapped, "induction", examples=4, length=16)
        data = task_sequences(wrapped, "induction", 4, 16)
        for layer, head in ((0, 0), (1, 3)):
            with torch.no_grad(), zeroed_heads(wrapped, [(layer, head)]):
                logits = wrapped.model(data.ids)
            losses = F.cross_entropy(logits.mT, data.targets, ignore_index=-100, reduction="none")
            by_hand = losses.sum(1) / data.scored.sum(1)
            place = layer * HEADS + head
            np.testing.assert_allclose(by_hand, result.sweep.ablated[place, :, 0], rtol=1e-5)

    @pytest.mark.parametrize("model", [MiniGPT, TorchEncoder], ids=lambda model: model.__name__)
    def test_a_silenced_head_is_its_columns_of_the_projection(self, model):
        plain = model().eval()
        attention = plain.blocks[1].attention if model is MiniGPT else plain.encoder.layers[1].self_attn
        projection = attention.out if model is MiniGPT else attention.out_proj
        ids, columns = tokens(), slice(2 * HEAD_DIM, 3 * HEAD_DIM)
        with torch.no_grad(), zeroed_heads(own(plain), [(1, 2)]):
            silenced = plain(ids)
        with torch.no_grad():
            projection.weight[:, columns] = 0
            torch.testing.assert_close(silenced, plain(ids))

    def test_tokens_of_ones_own_are_scored(self):
        wrapped = own(MiniGPT())
        result = ablate_model(wrapped, tokens())
        with torch.no_grad():
            logits = wrapped.model(tokens())[:, :-1]
        loss = F.cross_entropy(logits.flatten(0, 1), tokens()[:, 1:].flatten()).item()
        assert result.sweep.loss == pytest.approx(loss, rel=1e-5)

    def test_a_model_that_sees_both_ways_needs_a_mask_token(self):
        with pytest.raises(ConfigError, match="is bidirectional, so tokens must be masked"):
            ablate_model(own(TorchEncoder()), "induction", examples=4, length=16)

    def test_padding_is_refused(self):
        with pytest.raises(UnsupportedError, match="MiniGPT accepts only sequences of equal length"):
            own(MiniGPT())(tokens(2, 3), attention_mask=torch.tensor([[1, 1, 1], [1, 1, 0]]))


class TestTheModuleStaysAsItIs:
    def test_weights_modes_and_forward_passes(self):
        model = TorchEncoder().train()
        before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        wrapped = OwnModel(model, vocabulary=VOCABULARY, max_length=LENGTH, mask_token=1)
        fused = torch.backends.mha.get_fastpath_enabled()
        audit(wrapped)
        ablate_model(wrapped, "induction", examples=4, length=8)
        assert torch.backends.mha.get_fastpath_enabled() == fused
        assert all(module.training for module in model.modules())
        assert not [module for module in model.modules() if "forward" in module.__dict__]
        after = model.state_dict()
        assert after.keys() == before.keys()
        assert all(torch.equal(after[name], tensor) for name, tensor in before.items())

    @pytest.mark.parametrize("options", [{}, {"causal": True}, {"norm_first": True}, {"bias": False}])
    def test_the_visible_forward_pass_is_that_of_torch(self, options):
        model = TorchEncoder(**options).eval()
        with torch.no_grad():
            torch.testing.assert_close(own(model)(tokens()).logits, model(tokens()))


class TestMultiHeadForward:
    @pytest.mark.parametrize("kind", ["boolean", "added", "per head", "padding", "causal"])
    def test_it_agrees_with_torch_under_every_mask(self, kind):
        module = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True).double().eval()
        x, n = torch.randn(3, 7, WIDTH, dtype=torch.float64), 7
        forbidden = torch.ones(n, n, dtype=torch.bool).triu(1)
        given = {
            "boolean": {"attn_mask": forbidden},
            "added": {"attn_mask": torch.randn(n, n, dtype=torch.float64)},
            "per head": {"attn_mask": torch.randn(3 * HEADS, n, n, dtype=torch.float64)},
            "padding": {"key_padding_mask": torch.arange(n)[None] >= torch.tensor([[7], [5], [3]])},
            "causal": {"attn_mask": forbidden, "is_causal": True},
        }[kind]
        expected, _ = module(x, x, x, need_weights=False, **given)
        found, pattern = multi_head_forward(module, x, x, x, **given)
        torch.testing.assert_close(found, expected)
        assert pattern is None

    def test_other_widths_of_keys_and_values(self):
        module = nn.MultiheadAttention(WIDTH, HEADS, kdim=12, vdim=20, batch_first=True).double().eval()
        x, k, v = (torch.randn(2, n, w, dtype=torch.float64) for n, w in ((5, WIDTH), (6, 12), (6, 20)))
        torch.testing.assert_close(multi_head_forward(module, x, k, v)[0], module(x, k, v)[0])

    def test_dropout_is_that_of_the_module(self):
        module = nn.MultiheadAttention(WIDTH, HEADS, dropout=0.5, batch_first=True).train()
        x = torch.randn(2, 5, WIDTH)
        assert not torch.equal(multi_head_forward(module, x, x, x)[0], multi_head_forward(module, x, x, x)[0])

    def test_modules_that_it_does_not_reproduce_are_refused(self):
        with pytest.raises(UnsupportedError, match="read with batch_first=True alone"):
            own(TorchEncoder(batch_first=False))
        model = nn.Sequential(nn.MultiheadAttention(8, 2, add_bias_kv=True, batch_first=True))
        with pytest.raises(UnsupportedError, match="with add_bias_kv or add_zero_attn is not read here"):
            own(model)


class TestEinsum:
    @pytest.mark.parametrize(
        ("equation", "left", "right"),
        [
            ("bhid,bhjd->bhij", (2, 3, 4, 5), (2, 3, 6, 5)),
            ("bihd, bjhd -> bhij", (2, 4, 3, 5), (2, 6, 3, 5)),
            ("bjhd,bihd->bhij", (2, 6, 3, 5), (2, 4, 3, 5)),
        ],
    )
    def test_a_product_is_found_in_its_equation(self, equation, left, right):
        a, b = torch.randn(left, dtype=torch.float64), torch.randn(right, dtype=torch.float64)
        factors = einsum_operands(equation, a, b)
        assert factors is not None
        torch.testing.assert_close(factors[0] @ factors[1], torch.einsum(equation, a, b))
        assert einsum_operands(equation, [a, b]) is not None

    def test_a_result_in_another_order_is_that_of_the_product_transposed(self):
        a, b = torch.randn(2, 3, 4, 6, dtype=torch.float64), torch.randn(6, 2, 3, 5, dtype=torch.float64)
        factors = einsum_operands("bhij,jbhd->ibhd", a, b)
        assert factors is not None
        torch.testing.assert_close(
            (factors[0] @ factors[1]).permute(2, 0, 1, 3), torch.einsum("bhij,jbhd->ibhd", a, b)
        )

    @pytest.mark.parametrize("equation", ["bid,bjd,bd->bij", "hid,bhjd->bhij", "bide,bjde->bij"])
    def test_other_equations_are_none(self, equation):
        assert einsum_operands(equation, *[torch.ones(2, 2, 2, 2)] * len(equation.split(","))) is None


class TestDeclarations:
    @pytest.mark.parametrize(
        "schedule",
        [
            Geometric(base=500.0),
            Linear(base=500.0, factor=2.0),
            Llama3(base=500.0, trained_length=16),
            YaRN(base=500.0, trained_length=16),
        ],
        ids=lambda schedule: schedule.kind,
    )
    def test_a_schedule_reads_back(self, schedule):
        config = RoPE.Config(head_dim=HEAD_DIM, schedule=schedule, pairs="halves")
        turning = declared_layer(Declaration(declared_fields(config), {}), "", 0, LENGTH).turning
        assert turning is not None
        np.testing.assert_allclose(turning.frequencies, schedule.frequencies(HEAD_DIM))
        assert turning.pairing == "halves"
        assert turning.gain == pytest.approx(schedule.gain**2)

    def test_other_encodings_read_back(self):
        slopes = declared_layer(Declaration(declared_fields(ALiBi.Config(n_heads=4)), {}), "", 0, 8).slopes
        np.testing.assert_allclose(slopes, alibi_slopes(4))
        assert declared_layer(Declaration(declared_fields("nope"), {}), "", 0, 8).kind == "none"
        assert declared_layer(Declaration(declared_fields(Learned.Config()), {}), "", 0, 8).kind == "none"
        assert declared_layer(Declaration(declared_fields(None), {}), "", 0, 8).kind is None
        windowed = Declaration(declared_fields({"sliding_window": 4}), {})
        assert declared_layer(windowed, "", 0, 8).mask is not None

    def test_what_cannot_be_declared_is_refused(self):
        with pytest.raises(UnsupportedError, match="no declaration of encoding 'fire'"):
            declared_fields("fire")
        with pytest.raises(UnsupportedError, match="no declaration of frequency schedule 'dynamic_ntk'"):
            declared_fields(RoPE.Config(schedule=DynamicNTK()))
        with pytest.raises(UnknownNameError, match="did you mean rope"):
            declared_fields("rop")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"vocabulary": 5}, r"OwnModel\.vocabulary must be at least 6; got 5"),
        ({"predictor": "tail"}, r"OwnModel\.predictor must be the dotted name of a module; got 'tail'"),
    ],
)
def test_mistakes_are_one_line(options, message):
    with pytest.raises(ConfigError, match=message):
        own(MiniGPT(), **options)


def test_a_model_without_token_logits_is_not_ablated():
    wrapped = own(MiniGPT(), vocabulary=VOCABULARY + 1)
    with pytest.raises(UnsupportedError, match="predicts no tokens"):
        ablate_model(wrapped, tokens())
    assert own(MiniGPT(), vocabulary=VOCABULARY + 1, predictor="head").get_output_embeddings() is not None


def test_hidden_attention_is_named_as_such():
    class Hidden(nn.Module):
        def forward(self, ids):
            return F.one_hot(ids, VOCABULARY).float()

    wrapped = OwnModel(nn.Sequential(Hidden(), nn.Linear(VOCABULARY, VOCABULARY)), vocabulary=VOCABULARY)
    with pytest.raises(UnsupportedError, match="shows no attention kernel"):
        audit(wrapped)


def test_a_table_that_is_too_small_is_named_instead_of_the_attention():
    model = own(MiniGPT(table=True), max_length=None)
    ids = torch.zeros(2, 2 * LENGTH, dtype=torch.long)
    for measure in (lambda: audit(model, length=4 * LENGTH), lambda: sp.ablate(model, on=ids)):
        with pytest.raises(UnsupportedError, match="is too small for its input; give token ids below"):
            measure()
