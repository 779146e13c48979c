"""Extension of checkpoints, against perplexities and models of plain transformers code."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close
from transformers import (
    CohereConfig,
    CohereForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
)

from spectrope.checkpoints import open_model
from spectrope.checkpoints.extension.bands import head_bands, leaving
from spectrope.checkpoints.extension.extend import extend_checkpoint
from spectrope.checkpoints.extension.perplexity import key_tokens, losses, needle_accuracy, sliding_losses
from spectrope.checkpoints.extension.rotations import METHODS, rotations_of, scaled, slowed
from spectrope.checkpoints.extension.search import searched_factors
from spectrope.core.errors import ConfigError, UnknownNameError, UnsupportedError

LENGTH = 32
SIZES = {
    "vocab_size": 64,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "intermediate_size": 32,
    "max_position_embeddings": LENGTH,
}
FACTOR = 4.0


def llama(**rope):
    torch.manual_seed(0)
    parameters = {"rope_type": "default", "rope_theta": 1000.0} | rope
    return LlamaForCausalLM(LlamaConfig(**SIZES, rope_parameters=parameters)).eval()


def tokens(n=2 * 4 * LENGTH + 5, seed=0):
    return torch.randint(3, 64, (n,), generator=torch.Generator().manual_seed(seed))


def plain_losses(model, ids):
    with torch.no_grad():
        logits = model(ids[None]).logits[0]
    return torch.stack([F.cross_entropy(logits[i], ids[i + 1]) for i in range(len(ids) - 1)]).double()


class TestScaling:
    @pytest.mark.parametrize(
        ("method", "rope"),
        [
            ("linear", {"rope_type": "linear", "factor": FACTOR}),
            ("yarn", {"rope_type": "yarn", "factor": FACTOR, "original_max_position_embeddings": LENGTH}),
        ],
    )
    def test_logits_are_those_of_a_checkpoint_whose_configuration_says_so(self, method, rope):
        model, declared, ids = llama(), llama(**rope), tokens(100)[None]
        with torch.no_grad(), scaled(model, METHODS[method], FACTOR, LENGTH):
            assert_close(model(ids).logits, declared(ids).logits, atol=1e-5, rtol=1e-4)

    def test_ntk_is_a_checkpoint_with_a_larger_base(self):
        width = SIZES["hidden_size"] // 2
        other, ids = llama(rope_theta=1000.0 * FACTOR ** (width / (width - 2))), tokens(100)[None]
        model = llama()
        with torch.no_grad(), scaled(model, METHODS["ntk"], FACTOR, LENGTH):
            assert_close(model(ids).logits, other(ids).logits, atol=1e-5, rtol=1e-4)

    def test_longrope_is_a_checkpoint_that_declares_the_factors(self):
        pairs = SIZES["hidden_size"] // 4
        factors = tuple(1 + 3 * j / (pairs - 1) for j in range(pairs))
        declared = llama(
            rope_type="longrope",
            factor=FACTOR,
            original_max_position_embeddings=LENGTH,
            long_factor=list(factors),
            short_factor=[1.0] * pairs,
        )
        model, ids = llama(), tokens(100)[None]
        with torch.no_grad(), scaled(model, slowed(factors), FACTOR, LENGTH):
            assert_close(model(ids).logits, declared(ids).logits, atol=1e-5, rtol=1e-4)

    def test_dropped_positions_let_one_layer_forget_the_order(self):
        model = llama()
        model.model.layers = model.model.layers[:1]
        ids = tokens(20)
        shuffled = torch.cat([ids[:19].flip(0), ids[19:]])
        with torch.no_grad(), scaled(model, METHODS["drope"], FACTOR, LENGTH):
            first, second = (model(one[None]).logits[0, -1] for one in (ids, shuffled))
        assert_close(first, second)

    @pytest.mark.parametrize("method", ["none", "linear", "ntk", "yarn", "drope"])
    def test_the_checkpoint_comes_back(self, method):
        model, ids = llama(), tokens(40)[None]
        with torch.no_grad():
            before = model(ids).logits
            with pytest.raises(KeyError), scaled(model, METHODS[method], FACTOR, LENGTH):
                raise KeyError
            assert torch.equal(model(ids).logits, before)

    def test_what_cannot_be_scaled_is_refused(self):
        yarn = llama(rope_type="yarn", factor=2.0, original_max_position_embeddings=LENGTH)
        with (
            pytest.raises(UnsupportedError, match="not a geometric series"),
            scaled(yarn, METHODS["ntk"], 2.0, LENGTH),
        ):
            pass
        with pytest.raises(UnsupportedError, match=r"recomputes its frequencies by length \(dynamic\)"):
            rotations_of(llama(rope_type="dynamic", factor=2.0))
        gpt2 = GPT2LMHeadModel(GPT2Config(vocab_size=16, n_embd=8, n_layer=1, n_head=1, n_positions=8))
        with pytest.raises(UnsupportedError, match="GPT2LMHeadModel has no rotary module"):
            rotations_of(gpt2)
        with (
            pytest.raises(ConfigError, match=r"factor must be at least 1; got 0\.5"),
            scaled(llama(), METHODS["none"], 0.5, 8),
        ):
            pass


class TestPerplexity:
    def test_losses_are_those_of_plain_code(self):
        model, ids = llama(), tokens(50)
        assert_close(losses(model, ids), plain_losses(model, ids), atol=1e-5, rtol=1e-5)

    @pytest.mark.parametrize(("window", "stride"), [(16, 4), (16, 15), (20, 7), (60, 5)])
    def test_sliding_windows_as_transformers_documents_them(self, window, stride):
        """Windows that start `stride` tokens apart, of which only new tokens are scored."""
        model, ids = llama(), tokens(50)
        expected, end = list(plain_losses(model, ids[:window])), min(window, 50)
        while end < 50:
            new = min(stride, 50 - end)
            end += new
            labels = ids[end - new - (window - stride) : end].clone()
            labels[:-new] = -100
            with torch.no_grad():
                mean = model(ids[None, end - new - (window - stride) : end], labels=labels[None]).loss
            expected.append(mean.double() * new)
        ours = sliding_losses(model, ids, window, stride)
        assert len(ours) == 49
        assert_close(float(ours.sum()), float(sum(expected)), atol=1e-3, rtol=1e-5)

    def test_key_tokens_by_hand(self):
        long, short = torch.tensor([0.5, 0.5, 3.0, 1.9]), torch.tensor([3.0, 2.4, 6.0, 4.0])
        assert key_tokens(long.double(), short.double()).tolist() == [True, False, False, True]

    def test_key_tokens_and_their_perplexity_are_those_of_longppl(self):
        longppl = pytest.importorskip("longppl.longppl")
        model, ids, window, stride = llama(), tokens(90), 24, 6
        with torch.no_grad():
            for layer in model.model.layers:
                layer.self_attn.o_proj.weight.mul_(30)  # So that contexts matter.

        class Encoded(dict):
            pass

        def tokenizer(text, **settings):
            offsets = torch.stack([torch.arange(90) * 2, torch.arange(90) * 2 + 1], -1)
            return Encoded(input_ids=ids[None], offset_mapping=offsets[None])

        limits = {"alpha": 0.05, "beta": -4.2}
        found = longppl.find_key_token("", model, tokenizer, window - stride, stride, **limits)
        theirs = sorted(int(start) // 2 for start, _ in found)
        long = losses(model, ids)
        keys = key_tokens(long, sliding_losses(model, ids, window, stride), **limits)
        ours = [place + 1 for place in keys.nonzero()[:, 0].tolist()]
        assert 3 < len(ours) < 60
        assert ours == theirs
        sizes = {"trunc_len": window - stride, "sliding_window": stride}
        whole = longppl.compute_longppl("", model, model, tokenizer, tokenizer, **sizes, **limits)
        assert whole["n_key_token"] == len(ours)
        assert float(long[keys].mean().exp()) == pytest.approx(float(whole["longppl"]), rel=1e-5)

    def test_a_stride_that_leaves_no_context_is_refused(self):
        with pytest.raises(ConfigError, match="stride must be from 1 to 15"):
            sliding_losses(llama(), tokens(40), 16, 16)

    def test_a_model_that_copies_finds_every_needle_and_another_none(self):
        class Copies(torch.nn.Module):
            """Says what followed the last token where that stood before."""

            def __init__(self, right):
                super().__init__()
                self.right, self.weight = right, torch.nn.Parameter(torch.zeros(1))

            def forward(self, input_ids, use_cache):
                row = input_ids[0]
                before = (row[:-1] == row[-1]).nonzero()[0, 0]
                wanted = row[before + 1] if self.right else row[-1]
                return type("Output", (), {"logits": F.one_hot(wanted, 64)[None, None].float()})

        for right in (True, False):
            assert needle_accuracy(Copies(right), torch.arange(3, 64), 40) == right
        with pytest.raises(ConfigError, match="a needle needs 4 tokens of 3 kinds"):
            needle_accuracy(Copies(True), torch.arange(2), 40)


class TestBands:
    def test_a_pair_leaves_where_it_made_less_than_a_turn(self):
        frequencies = torch.tensor([1.0, 0.2, 0.19, 0.001, 0.0])
        assert leaving(frequencies, 32, 2.0).tolist() == [False, False, True, True, False]
        assert not leaving(frequencies, 32, 1.0).any()

    @pytest.mark.parametrize("layout", ["halves", "adjacent"])
    def test_shares_are_those_of_the_projections(self, layout):
        """Rotation keeps the norms of pairs, so that projections give them without it."""
        if layout == "halves":
            model = llama()
        else:
            torch.manual_seed(0)
            model = CohereForCausalLM(CohereConfig(**SIZES, rope_theta=1000.0, use_qk_norm=False)).eval()
        ids = tokens(20)[None]
        bands = head_bands(model, ids, LENGTH, FACTOR)
        frequencies = rotations_of(model)[0].frequencies
        out = frequencies * LENGTH < 2 * math.pi
        assert set(bands["leaving"]) == {int(out.sum())}
        layer, m = model.model.layers[0], len(frequencies)
        hidden = layer.input_layernorm(model.model.embed_tokens(ids))
        q = layer.self_attn.q_proj(hidden).unflatten(-1, (2, -1)).transpose(1, 2)
        k = layer.self_attn.k_proj(hidden).unflatten(-1, (1, -1)).transpose(1, 2)

        def norms(x):
            x = x.unflatten(-1, (2, m)).mT if layout == "halves" else x.unflatten(-1, (m, 2))
            return x.norm(dim=-1).mean((0, 2))

        products = norms(q) * norms(k)
        expected = (products[:, out].sum(-1) / products.sum(-1)).tolist()
        ours = bands.filter(bands["layer"] == 0)["share"].to_list()
        assert ours == pytest.approx(expected, rel=1e-4)


class TestExtension:
    @pytest.mark.parametrize(
        ("factor", "rule"), [(math.inf, "and finite"), (1.001, "add at least one position")]
    )
    def test_a_factor_that_adds_nothing_or_everything_is_refused(self, factor, rule):
        with pytest.raises(ConfigError, match=rule):
            extend_checkpoint(llama(), factor)

    def test_a_random_head_is_refused_where_texts_are_scored(self, tmp_path):
        llama().model.save_pretrained(tmp_path)
        config = json.loads((tmp_path / "config.json").read_text())
        config["architectures"] = ["LlamaForCausalLM"]
        (tmp_path / "config.json").write_text(json.dumps(config))
        model = open_model(str(tmp_path))
        with pytest.raises(UnsupportedError, match="would predict by a random head"):
            extend_checkpoint(model, FACTOR, [tokens()])
        assert extend_checkpoint(model, FACTOR).scores.is_empty()

    def test_scores_have_no_dropout_in_training_mode(self):
        model = llama()
        for layer in model.model.layers:
            layer.self_attn.attention_dropout = 0.5
        given = {"methods": ("none",), "stride": 16, "needles": 0}
        scores = [extend_checkpoint(model.train(mode), FACTOR, [tokens()], **given) for mode in (False, True)]
        assert scores[0].scores.equals(scores[1].scores)
        assert model.training

    def test_scores_are_those_of_plain_transformers_code(self):
        model, text = llama(), tokens()
        found = extend_checkpoint(model, FACTOR, [text], stride=8, needles=0)
        rows = {row["method"]: row for row in found.scores.iter_rows(named=True)}
        assert list(rows) == ["window", "none", "linear", "ntk", "yarn", "drope"]
        context, pieces = 4 * LENGTH, text.split(4 * LENGTH)[:2]
        linear = llama(rope_type="linear", factor=FACTOR)
        for name, plain in (("none", model), ("linear", linear)):
            nats = torch.cat([plain_losses(plain, piece)[LENGTH - 1 :] for piece in pieces])
            assert rows[name]["perplexity"] == pytest.approx(math.exp(nats.mean()), rel=1e-5)
            assert rows[name]["low"] < rows[name]["perplexity"] < rows[name]["high"]
            assert (rows[name]["tokens"], rows[name]["context"]) == (2 * (context - LENGTH), context)
        short = torch.cat([sliding_losses(model, piece, LENGTH, 8)[LENGTH - 1 :] for piece in pieces])
        assert rows["window"]["perplexity"] == pytest.approx(math.exp(short.mean()), rel=1e-6)
        assert len({row["key_tokens"] for row in rows.values()}) == 1

    def test_longrope_is_searched_on_the_first_piece_and_scored_on_the_others(self):
        model, pieces = llama(), tokens(seed=2).split(4 * LENGTH)[:2]
        with torch.no_grad():
            for layer in model.model.layers:
                layer.self_attn.q_proj.weight.mul_(20)  # So that angles matter.
        methods = ("none", "linear", "longrope")
        found = extend_checkpoint(model, FACTOR, [torch.cat(pieces)], methods=methods, stride=16, needles=0)
        perplexities = dict(found.scores.select("method", "perplexity").iter_rows())
        assert set(found.scores["tokens"]) == {3 * LENGTH}
        beyond = losses(model, pieces[1])[LENGTH - 1 :]
        assert perplexities["none"] == pytest.approx(float(beyond.mean().exp()))

        def searched(factors):
            with scaled(model, slowed(factors), FACTOR, LENGTH):
                return float(losses(model, pieces[0])[LENGTH - 1 :].mean())

        assert found.factors == searched_factors(model, pieces[0], FACTOR, LENGTH)
        assert searched(found.factors) < searched((FACTOR,) * len(found.factors))
        with scaled(model, slowed(found.factors), FACTOR, LENGTH):
            beyond = losses(model, pieces[1])[LENGTH - 1 :]
        assert perplexities["longrope"] == pytest.approx(float(beyond.mean().exp()))
        assert "longrope divides frequencies, from the highest on, by 1" in str(found)
        assert found.to_dict()["factors"] == list(found.factors)

    def test_without_texts_bands_alone_are_predicted(self):
        found = extend_checkpoint(llama(), FACTOR)
        assert found.scores.is_empty()
        assert found.to_frame().columns == ["layer", "head", "pairs", "leaving", "share"]
        assert "reach angles that never occurred in" in str(found)

    def test_what_breaks_a_rule_is_refused(self):
        model = llama()
        with pytest.raises(ConfigError, match="texts must have at least 128 tokens; the longest has 60"):
            extend_checkpoint(model, FACTOR, [tokens(60)])
        with pytest.raises(UnknownNameError, match="unknown method 'yaml'; did you mean yarn"):
            extend_checkpoint(model, FACTOR, methods=("yaml",))
        with pytest.raises(ConfigError, match="factor must be above 1"):
            extend_checkpoint(model, 1.0)
        with pytest.raises(ConfigError, match="longrope is searched on one piece of 128 tokens and scored"):
            extend_checkpoint(model, FACTOR, [tokens(130)], methods=("longrope",))
        model = CohereForCausalLM(CohereConfig(**SIZES | {"max_position_embeddings": 2})).eval()
        with pytest.raises(ConfigError, match="names no trained length"):
            extend_checkpoint(model, FACTOR)

    def test_tables_are_json_ready_and_displayed(self):
        found = extend_checkpoint(llama(), 2.0, [tokens(70)], methods=("none",), needles=2)
        assert found.to_dict()["scores"][1]["method"] == "none"
        assert 0 <= found.scores["needle"][1] <= 1
        assert "perplexity" in str(found)
        assert np.isfinite(found.bands["share"].to_numpy()).all()


def test_the_package_needs_no_network(tmp_path: Path):
    """A checkpoint is read from its folder alone."""
    folder = tmp_path / "model"
    llama().save_pretrained(folder)
    from spectrope.checkpoints import open_model

    assert extend_checkpoint(open_model(folder), 2.0).factor == 2.0
