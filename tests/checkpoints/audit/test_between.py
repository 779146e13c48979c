"""What is said of norms and factors between projections and rotated vectors, and of single pairs."""

import pytest
import torch
from tests.checkpoints.audit import zoo
from tests.checkpoints.audit.families import LENGTH, llama
from tests.checkpoints.audit.injections import at_kernel, in_head, rotating
from tests.checkpoints.audit.test_injections import model_of
from transformers.models.deepseek_v3 import modeling_deepseek_v3

from spectrope.checkpoints.audit import audit


def normalised(x):
    return x / x.square().mean(-1, keepdim=True).sqrt()


def times(x, factors):
    """Factors on coordinates."""
    weights = torch.ones(x.shape[-1])
    for coordinate, factor in factors.items():
        weights[coordinate] = factor
    return x * weights


def order(x, places):
    return x[..., [*places, *(len(places) + place for place in places)]]


HALF = 8
PAIR = {2: 2.0, 2 + HALF: 2.0}
CASES = {
    "norms": (
        lambda own, q, k, c, s: own(normalised(q), normalised(k), c, s),
        ("SPE114", "SPE114"),
        "norm of queries: none declared, one that is no module of the layer effective",
    ),
    "norm of keys": (
        lambda own, q, k, c, s: own(q, k / k.norm(dim=-1, keepdim=True), c, s),
        ("SPE114",),
        "norm of keys: none declared",
    ),
    "a pair of queries": (
        lambda own, q, k, c, s: (times(own(q, k, c, s)[0], PAIR), own(q, k, c, s)[1]),
        ("SPE103",),
        "factors of queries: 1 in every pair declared, 2 in pair 2 effective",
    ),
    "a pair of one head of queries": (
        lambda own, q, k, c, s: own(in_head(q, 1, times(q, PAIR)), k, c, s),
        ("SPE103",),
        "factors of queries of head 1: 1 in every pair declared, 2 in pair 2 effective",
    ),
    "a coordinate": (
        lambda own, q, k, c, s: own(times(q, {3: 0.5}), times(k, {3: 0.5}), c, s),
        ("SPE103", "SPE103"),
        "factors of queries: 1 in every pair declared, 0.5 and 1 in pair 3 effective",
    ),
    "six pairs of keys": (
        lambda own, q, k, c, s: own(q, times(k, dict.fromkeys((0, 2, 3, 4, 6, 8), 3.0)), c, s),
        ("SPE103",),
        "factors of keys: 1 in every pair declared, 3 in pair 0, ",
    ),
    "a pair that stands still": (
        lambda own, q, k, c, s: own(q, k, times(c - 1, {4: 0, 12: 0}) + 1, times(s, {4: 0, 12: 0})),
        ("SPE102",),
        "base 10000, pair 4 does not rotate effective",
    ),
    "frequencies in reverse": (
        lambda own, q, k, c, s: own(q, k, *(order(x, range(HALF - 1, -1, -1)) for x in (c, s))),
        ("SPE102",),
        "the declared ones in reverse",
    ),
    "two pairs exchanged": (
        lambda own, q, k, c, s: own(q, k, *(order(x, (1, 0, *range(2, HALF))) for x in (c, s))),
        ("SPE102",),
        "pairs 0 and 1 have each other's",
    ),
    "frequencies in turn": (
        lambda own, q, k, c, s: own(q, k, *(order(x, (2, 0, 1, *range(3, HALF))) for x in (c, s))),
        ("SPE102",),
        "the declared ones in another order",
    ),
    "rotated twice": (
        lambda own, q, k, c, s: own(*own(q, k, c, s), c, s),
        ("SPE102",),
        "as when the rotation is applied twice",
    ),
}


@pytest.mark.sampled
@pytest.mark.parametrize("name", CASES)
def test_what_happens_to_single_pairs_and_sizes_is_named(name, monkeypatch):
    change, codes, said = CASES[name]
    model = llama(rope_parameters={"rope_type": "default", "rope_theta": 1e4})
    assert model.config.head_dim == 2 * HALF
    assert audit(model, length=LENGTH).ok
    rotating(change)(model, monkeypatch)
    first = [one for one in audit(model, length=LENGTH).records if one.layer == 0]
    assert tuple(one.code for one in first) == codes
    assert said in first[0].message


def test_factors_of_a_pair_are_not_told_from_pruned_coordinates():
    model = llama()
    with torch.no_grad():
        for layer in model.model.layers:
            for projection in (layer.self_attn.q_proj, layer.self_attn.k_proj):
                projection.weight.unflatten(0, (-1, 2 * HALF))[:, [2, 2 + HALF]] = 0
    assert audit(model, length=LENGTH).ok


@pytest.mark.parametrize("family", ["dbrx", "olmo"])
def test_vectors_that_are_cut_off_as_declared_are_no_finding(family):
    model = zoo.build(zoo.Variant(family, zoo.families()[family]))
    model.config.clip_qkv = 0.2
    for module in model.modules():
        if hasattr(module, "clip_qkv"):
            module.clip_qkv = 0.2
    if hasattr(model.config, "attn_config"):
        model.config.attn_config.clip_qkv = 0.2
    found = audit(model, length=LENGTH)
    assert found.ok
    assert all(layer.effective.turning.gain == pytest.approx(1) for layer in found.layers)


@pytest.mark.parametrize(("family", "layer"), [("smollm3", 1), ("gpt2", 0)])
def test_a_norm_is_named_where_nothing_rotates(family, layer, monkeypatch):
    model = model_of(family)
    assert audit(model, length=LENGTH).ok
    at_kernel(lambda q, k, v: (normalised(q), normalised(k), v), [layer])(model, monkeypatch)
    records = audit(model, length=LENGTH).records
    assert {(one.code, one.layer) for one in records} == {("SPE114", layer)}
    assert len(records) == 2


@pytest.mark.parametrize("side", ["queries", "keys"])
def test_a_norm_before_the_rotation_of_latent_attention_is_named(side, monkeypatch):
    own = modeling_deepseek_v3.apply_rotary_pos_emb_interleave

    def rotate(q, k, *tables, **given):
        q, k = (normalised(q), k) if side == "queries" else (q, normalised(k))
        return own(q, k, *tables, **given)

    monkeypatch.setattr(modeling_deepseek_v3, "apply_rotary_pos_emb_interleave", rotate)
    records = audit(model_of("deepseek_v3"), length=LENGTH).records
    assert {(one.code, one.layer) for one in records} == {("SPE114", 0), ("SPE114", 1)}
    assert all(f"norm of {side}" in one.message for one in records)
