"""Rotations of which one part is computed in another way: sines or cosines, queries or keys."""

import pytest
import torch
from tests.checkpoints.audit.families import GROUPED, LENGTH, YARN, build, llama
from tests.checkpoints.audit.injections import at_kernel, rotating

from spectrope.checkpoints.audit import audit


def low(x):
    return x.bfloat16().float()


CASES = {
    "sines": (lambda own, q, k, c, s: own(q, k, c, low(s)), "bfloat16 sines rounded"),
    "cosines": (lambda own, q, k, c, s: own(q, k, low(c), s), "bfloat16 cosines rounded"),
    "both": (lambda own, q, k, c, s: own(q, k, low(c), low(s)), "bfloat16 sines and cosines rounded"),
}


@pytest.mark.parametrize("name", CASES)
def test_tables_in_low_precision_are_named(name, monkeypatch):
    change, said = CASES[name]
    model = llama(rope_parameters={"rope_type": "default", "rope_theta": 1e4})
    rotating(change)(model, monkeypatch)
    records = audit(model, length=LENGTH).records
    assert {one.code for one in records} == {"SPE106"}
    assert all(said in one.message for one in records)


@pytest.mark.parametrize("side", ["queries", "keys"])
def test_a_factor_that_one_side_lacks_is_told_by_side(side, monkeypatch):
    model = llama(rope_parameters=YARN)
    factor = model.model.rotary_emb.attention_scaling
    assert factor > 1.05

    def change(own, q, k, c, s):
        turned = dict(zip(("queries", "keys"), own(q, k, c, s), strict=True))
        turned[side] = turned[side] / factor
        return turned["queries"], turned["keys"]

    rotating(change)(model, monkeypatch)
    records = audit(model, length=LENGTH).records
    assert {one.code for one in records} == {"SPE103"}
    left = {"queries": factor, "keys": factor} | {side: 1.0}
    assert {one.effective for one in records} == {
        f"{left['queries']:.5g} on queries and {left['keys']:.5g} on keys"
    }


ORDERS = {
    "queries": (
        lambda q, k, v: (q[:, [1, 0, 2, 3]], k, v),
        "queries: 0, 1, 2, 3 declared, 1, 0, 2, 3 effective",
    ),
    "keys": (lambda q, k, v: (q, k.flip(1), v), "heads of keys: 0, 1 declared, 1, 0 effective"),
    "keys in turn": (
        lambda q, k, v: (q, k.repeat(1, 2, 1, 1), v.repeat(1, 2, 1, 1)),
        "once, or in runs declared, one projected head in heads 0, 2 and one projected head in heads 1, 3",
    ),
    "one head twice": (
        lambda q, k, v: (q[:, [0, 0, 2, 3]], k, v),
        "once declared, one projected head in heads 0, 1",
    ),
}


@pytest.mark.sampled
@pytest.mark.parametrize("name", ORDERS)
def test_heads_in_another_order_than_they_were_projected_are_named(name, monkeypatch):
    change, said = ORDERS[name]
    model = build("Llama", **GROUPED)
    assert audit(model, length=LENGTH).ok
    at_kernel(change)(model, monkeypatch)
    records = audit(model, length=LENGTH).records
    assert {one.code for one in records} == {"SPE407"}
    assert said in records[0].message
    assert "harmless" not in records[0].message


def test_heads_with_the_same_weights_are_in_order():
    model = build("Llama", **GROUPED | {"num_key_value_heads": 4})
    for layer in model.model.layers:
        for projection in (layer.self_attn.q_proj, layer.self_attn.k_proj):
            heads = projection.weight.data.unflatten(0, (4, -1))
            heads[2:] = heads[:2]
    assert audit(model, length=LENGTH).ok


def test_the_impact_of_an_order_of_heads_is_that_of_putting_it_back(monkeypatch):
    model = build("Llama", **GROUPED)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight *= 20 if "q_proj" in name or "k_proj" in name else 5 if "norm" not in name else 1
    at_kernel(lambda q, k, v: (q.flip(1), k, v))(model, monkeypatch)
    records = audit(model, length=LENGTH).records
    assert {one.code for one in records} == {"SPE407"}
    assert records[0].impact.divergence > 1e-3
