from dataclasses import replace

import pytest
import torch
from tests.lab.ablation.models import LATENT, decoder, examples, head_pairs, whole_layers
from torch.testing import assert_close

from spectrope.core.errors import ConfigError, UnknownNameError, UnsupportedError
from spectrope.core.progress import Progress
from spectrope.encodings.base import Encoding
from spectrope.encodings.nope import NoPE
from spectrope.encodings.positions.arange import Arange
from spectrope.encodings.positions.interpolated import Interpolated
from spectrope.lab.ablation import passes
from spectrope.lab.ablation.engine import ablated_logits, correctness
from spectrope.lab.ablation.gather import data_means, derangement, donor_outputs
from spectrope.lab.ablation.heads import ablated
from spectrope.lab.ablation.interventions import HeadAblation, growing, single_heads
from spectrope.lab.ablation.passes import Piece, intact_sites
from spectrope.lab.evaluation.score import correct, predict

CONDITIONS = {
    "controlled": {},
    "bidirectional": {"causal": False},
    "memory": {"memory": "embeddings"},
    "released": {"causal": False, "memory": "embeddings", "padding": "visible", "classes": "vocabulary"},
    "last": {"pooling": "last", "final_norm": True},
    "latent": {"attention": LATENT},
    "latent, released": {
        "attention": replace(LATENT, rotary_queries="shared"),
        "feed_forward": "gelu",
        "causal": False,
        "memory": "embeddings",
        "final_norm": True,
    },
}
FILLS = ["zero", "mean", "position-only", "content-only", "value-bias"]
CLOSE = {"rtol": 0, "atol": 1e-5}  # `predict` and the engine hand over float32; see test_float64 for more


def engine(model, data, variants, **how):
    """All logits of the engine as one tensor (variants, examples, classes); every place is filled once."""
    out = torch.full((len(variants), len(data), model.config.n_outputs), torch.nan)
    for found in ablated_logits(model, data, variants, **how):
        assert out[found.variants[:, None], found.examples].isnan().all()
        out[found.variants[:, None], found.examples] = found.logits
    return out


def one_by_one(model, data, variants, means=None, **how):
    """The same, each variant from a full forward pass: what the engine is checked against."""
    logits = []
    for variant in variants:
        with ablated(model, *variant, means=means):
            logits.append(predict(model, data, **how))
    return torch.stack(logits)


@pytest.mark.sampled
@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("encoding", ["rope", "alibi", "t5", "sinusoidal", "nope"])
def test_every_single_head_as_one_forward_per_head(encoding, condition):
    model, data = decoder(encoding, **CONDITIONS[condition]), examples()
    variants = [(), *single_heads(model.config)]
    expected = one_by_one(model, data, variants)
    assert_close(engine(model, data, variants), expected, **CLOSE)
    moved = (expected[1:] - expected[0]).abs().amax((1, 2))
    assert (moved > 1e-2).all()  # every head matters, so that nothing above holds by accident


@pytest.mark.sampled
@pytest.mark.parametrize("condition", ["controlled", "released", "latent"])
@pytest.mark.parametrize("fill", FILLS)
def test_every_fill_as_one_forward_per_head(fill, condition):
    model, data = decoder("alibi", **CONDITIONS[condition]), examples()
    variants, means = single_heads(model.config, fill), data_means(model, data)
    expected = one_by_one(model, data, variants, means=means)
    assert_close(engine(model, data, variants), expected, **CLOSE)
    assert ((expected - predict(model, data)).abs().amax((1, 2)) > 1e-3).all()


@pytest.mark.parametrize("fill", ["mean", "position-only", "resample"])
def test_padding_that_cannot_be_cut_off_counts_no_more_than_where_it_can(fill):
    cut, kept = (decoder("rope", positions=rule) for rule in (Arange(), Interpolated()))
    assert (cut.padding_is_inert, kept.padding_is_inert) == (True, False)
    data, variants = examples(), single_heads(cut.config, fill)
    assert_close(engine(kept, data, variants), engine(cut, data, variants), **CLOSE)


@pytest.mark.sampled
@pytest.mark.parametrize("condition", ["controlled", "memory"])
@pytest.mark.parametrize("fill", ["zero", "position-only"])
def test_sets_of_heads_across_layers(fill, condition):
    model, data = decoder("rope", **CONDITIONS[condition]), examples(6)
    order = [HeadAblation(*at, fill) for at in [(1, 2), (0, 0), (2, 3), (1, 1), (0, 3), (2, 0)]]
    variants = [(), *head_pairs(model.config, fill), *whole_layers(model.config, fill), *growing(order)]
    means = data_means(model, data)
    assert_close(engine(model, data, variants), one_by_one(model, data, variants, means=means), **CLOSE)


def test_mixed_fills_and_repeated_variants():
    model, data = decoder(), examples(5)
    mixed = (HeadAblation(0, 1), HeadAblation(0, 2, "mean"), HeadAblation(2, 0, "content-only"))
    variants = [mixed, (), mixed, mixed[::-1], ()]
    expected = one_by_one(model, data, variants, means=data_means(model, data))
    assert_close(engine(model, data, variants), expected, **CLOSE)


@pytest.mark.parametrize("tokens", [1, 40, 200, 10**6])
def test_the_size_of_batches_changes_nothing(tokens):
    model, data = decoder(), examples()
    variants = single_heads(model.config)
    assert_close(engine(model, data, variants, tokens=tokens), engine(model, data, variants), **CLOSE)


def test_float64_agrees_to_rounding(monkeypatch):
    """In double precision throughout, since `predict` rounds to float32."""
    model, data = decoder("t5", causal=False, memory="embeddings"), examples(8)
    seen = {}

    readout = passes.Piece.readout

    def spy(self, x):
        seen["logits"] = readout(self, x)
        return seen["logits"]

    monkeypatch.setattr(passes.Piece, "readout", spy)
    data = data[data.lengths.argsort(stable=True)]
    for variant in single_heads(model.config):
        engine(model, data, [variant])
        with ablated(model, *variant), torch.inference_mode():
            assert_close(seen["logits"][0], model(data.trimmed()), rtol=1e-12, atol=1e-12)


def test_resampling_takes_another_examples_output():
    """By plain arithmetic: the donor's head outputs, its last token standing in where it is shorter."""
    model, data = decoder("rope"), examples(9)
    partner = derangement(9, seed=3)
    assert (partner != torch.arange(9)).all()
    assert partner.sort().values.equal(torch.arange(9))
    got = engine(model, data, [(HeadAblation(1, 2, "resample"),)], seed=3)[0]
    for i in range(9):
        own, other = data[i : i + 1].trimmed(), data[partner[i : i + 1]].trimmed()
        kept = {}
        hook = model.blocks[1].heads.register_forward_hook(lambda m, x, out, kept=kept: kept.update(out=out))
        with torch.inference_mode():
            model(other)
        hook.remove()
        at = torch.arange(own.inputs.shape[1]).clamp(max=other.inputs.shape[1] - 1)
        donor = kept["out"][:, 2, at]

        def put(module, inputs, out, donor=donor):
            return torch.cat([out[:, :2], donor[:, None], out[:, 3:]], 1)

        hook = model.blocks[1].heads.register_forward_hook(put)
        with torch.inference_mode():
            expected = model(own)[0].float()
        hook.remove()
        assert_close(got[i], expected, **CLOSE)


def test_donors_by_hook_and_engine_agree():
    model, data = decoder("rope", padding="visible", causal=False), examples(7)
    variants = single_heads(model.config, "resample")
    got = engine(model, data, variants, seed=1, tokens=10**6)
    with torch.inference_mode():
        donors = donor_outputs(model, data[derangement(7, 1)], 12)
    for variant, logits in zip(variants, got, strict=True):
        with ablated(model, *variant, donors=donors):
            assert_close(logits, predict(model, data), **CLOSE)


def test_means_are_over_tokens_and_leave_padding_out():
    model, data = decoder(), examples(15)
    outputs = {layer: [] for layer in range(3)}
    for i in range(15):
        for layer, block in enumerate(model.blocks):
            block.heads.register_forward_hook(lambda m, x, out, layer=layer: outputs[layer].append(out[0]))
        with torch.inference_mode():
            model(data[i : i + 1].trimmed())
        for block in model.blocks:
            block.heads._forward_hooks.clear()
    for layer, found in enumerate(data_means(model, data, batch_size=4)):
        assert_close(found.outputs, torch.cat(outputs[layer], 1).mean(1).float())


def test_position_only_is_the_same_for_all_contents():
    """With values held, the pattern of a position-only head depends on positions alone."""

    model, data = decoder("rope"), examples(6)
    data = data[data.lengths == data.lengths.max()]
    means = data_means(model, examples())
    with torch.inference_mode():
        site = next(intact_sites(Piece.of(model, data, means=means)))
        kept = site.filled("position-only")
        swapped = site.ctx.q.flip(0) * 3, site.ctx.k.flip(0) - 1

        other = replace(site, ctx=replace(site.ctx, q=swapped[0], k=swapped[1]))
        assert_close(other.filled("position-only"), kept)
        assert not torch.allclose(other.filled("content-only"), site.filled("content-only"))


@pytest.mark.parametrize("encoding", ["rope", "alibi", "t5"])
def test_content_only_ignores_positions(encoding):
    """It equals a head without encoding, and moving tokens about moves nothing but their order."""
    model, bare = decoder(encoding, causal=False), decoder("nope", causal=False)
    shared = {n: p for n, p in model.state_dict().items() if not n.startswith("encodings")}
    bare.load_state_dict(shared, strict=False)
    data = examples(8)
    everything = tuple(HeadAblation(layer, head, "content-only") for layer in range(3) for head in range(4))
    assert_close(engine(model, data, [everything])[0], predict(bare, data), **CLOSE)


@pytest.mark.parametrize(
    "encoding", ["blend", "transformer_xl", "deberta", "shaw", "pope", "differential", "linear_attention"]
)
def test_content_only_keeps_what_a_bias_says_of_content(encoding):
    """It equals a model in which every token is at position 0."""
    model, data = decoder(encoding, causal=False), examples(8)
    everything = tuple(HeadAblation(layer, head, "content-only") for layer in range(3) for head in range(4))
    here = replace(data, positions=torch.zeros_like(data.inputs))
    got = engine(model, data, [everything])[0]
    assert_close(got, predict(model, here), **CLOSE)
    assert (got - predict(model, data)).abs().amax() > 1e-2


@torch.no_grad()
@pytest.mark.parametrize("encoding", ["rope", "shaw"])
def test_value_bias_is_what_zeroing_the_weights_of_values_leaves(encoding):
    model, data = decoder(encoding), examples(8)
    zeroed = decoder(encoding)
    inner, width = zeroed.blocks[1].heads.inner, zeroed.config.head_dim
    zeroed.blocks[1].heads.qkv.weight[2 * inner + 2 * width : 2 * inner + 3 * width] = 0
    got = engine(model, data, [(HeadAblation(1, 2, "value-bias"),)])[0]
    assert_close(got, predict(zeroed, data), **CLOSE)


def test_correctness_leaves_out_labels_that_do_not_count():
    model, data = decoder(classes="vocabulary"), examples(40)
    seen = []
    hits = correctness(model, data, [(), *single_heads(model.config)], watch=seen.append)
    assert hits.shape == (13, int((data.labels != 0).sum()))
    assert hits[0].equal(correct(model, data, predict(model, data)))
    with ablated(model, HeadAblation(2, 3)):
        assert hits[-1].equal(correct(model, data, predict(model, data)))
    assert seen[-1] == Progress("ablate", 13 * 40, 13 * 40)


def test_the_engine_never_touches_the_model():
    model, data = decoder(), examples(6)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    logits = ablated_logits(model, data, single_heads(model.config, "mean"))
    next(logits)
    logits.close()
    assert not any(module._forward_hooks for module in model.modules())
    assert all(value.equal(before[name]) for name, value in model.state_dict().items())


def test_float32_stays_within_a_ten_thousandth():
    model, data = decoder(dtype=torch.float32), examples()
    variants = single_heads(model.config)
    expected = one_by_one(model, data, variants)
    assert_close(engine(model, data, variants), expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("tokens", [None, 1])
def test_bfloat16_is_close(tokens):
    model, data = decoder(dtype=torch.float32), examples(40)
    variants = single_heads(model.config)
    full = engine(model, data, variants)
    half = engine(model, data, variants, dtype=torch.bfloat16, tokens=tokens)
    assert not half.equal(full)
    assert_close(half, full, rtol=0.1, atol=0.15 * full.abs().max().item())


def test_bfloat16_is_left_behind_with_each_result():
    model, data = decoder(dtype=torch.float32), examples(3)
    for _ in ablated_logits(model, data, single_heads(model.config), dtype=torch.bfloat16, tokens=1):
        assert not torch.is_autocast_enabled("cpu")
        assert not torch.is_inference_mode_enabled()


def test_what_a_model_does_not_have_is_refused():
    model, data = decoder(), examples(3)
    with pytest.raises(ConfigError, match=r"HeadAblation.head must be between 0 and 3; got 4"):
        next(ablated_logits(model, data, [(HeadAblation(0, 4),)]))
    with pytest.raises(ConfigError, match=r"HeadAblation.layer must be between 0 and 2; got -1"):
        next(ablated_logits(model, data, [(HeadAblation(-1, 0),)]))
    with pytest.raises(ConfigError, match="fills that take other examples need at least 2 of them; got 1"):
        next(ablated_logits(model, data[:1], [(HeadAblation(0, 0, "resample"),)]))
    with pytest.raises(UnknownNameError, match="unknown fill 'zeros'; did you mean zero"):
        HeadAblation(0, 0, "zeros")


class Peeking(Encoding):
    """Stands for encodings whose bias looks at tokens."""

    tags = frozenset()


@pytest.mark.parametrize(
    ("fill", "encoding", "match"),
    [
        ("position-only", Peeking, "each depend on one query and one key; those of Peeking depend on other"),
        ("content-only", Peeking, "each depend on one query and one key; those of Peeking depend on other"),
    ],
)
def test_fills_without_meaning_for_an_encoding_are_refused(fill, encoding, match):
    with torch.inference_mode():
        site = next(intact_sites(Piece.of(decoder(), examples(3))))
    with pytest.raises(UnsupportedError, match=match):
        replace(site, encoding=encoding(NoPE.Config())).filled(fill)


def test_queries_that_look_at_tokens_are_not_reordered():
    """Memory kept, keys copied instead: the general way gives what the short one gives."""
    model, data = decoder("t5", memory="embeddings"), examples(5)
    with torch.inference_mode():
        piece = Piece.of(model, data)
        x = torch.stack([piece.x, 2 * piece.x])
        assert_close(piece.outputs(1, x), piece.site(1, x).outputs)
        model.encodings[0].tags = frozenset()
        assert piece.outputs(1, x).equal(piece.site(1, x).outputs)
