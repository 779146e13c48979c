"""Indexers of sparse attention: what they rotate by, faults in it, and what is not read."""

import json
from dataclasses import replace

import pytest
import torch
import transformers
from tests.checkpoints.audit.injections import indexing, later
from tests.checkpoints.audit.museum_faults import in_halves, interleaved
from tests.checkpoints.audit.zoo import DTYPES, HEADS, Variant, build, families, in_precision, small_config

from spectrope.checkpoints.audit import audit
from spectrope.checkpoints.audit.text import closing
from spectrope.checkpoints.lock import lock, read_lock, write_lock
from spectrope.checkpoints.lock.opening import checked
from spectrope.cli import main
from spectrope.core import unwatched

LENGTH = 96
LATENT = ("axk2", "deepseek_v32", "dots3_note_text", "glm_moe_dsa", "hy_v4", "mistral_large4_text")
M3 = "minimax_m3_vl_text"


def sparse_m3(dtype="float32"):
    """MiniMax M3 with one layer of each kind; a half of its indexer's coordinates turns."""
    fields = small_config(M3).to_dict() | {"layer_types": ["full_attention", "minimax_m3_sparse"]}
    del fields["model_type"]
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(M3, **(fields | {"index_head_dim": 32}))
    return in_precision(getattr(transformers, HEADS["causal"][M3])(config).eval(), dtype)


def model_of(family, dtype="float32"):
    return sparse_m3(dtype) if family == M3 else build(Variant(family, families()[family], dtype=dtype))


def found(model, **options):
    return audit(model, length=LENGTH, watch=unwatched, **({"serving_modes": False} | options))


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("family", [*LATENT, M3])
def test_an_unmodified_indexer_matches(family, dtype):
    result = found(model_of(family, dtype))
    assert result.ok, str(result)
    layers = [1] if family == M3 else [0, 1]
    assert [one.name for one in result.indexers] == [f"indexer {layer}" for layer in layers]
    assert {one.verdict for one in result.indexers} == {"matches"}
    assert not any("indexers" in words for words in result.unexercised)
    assert f"Indexers (layers {', '.join(map(str, layers))})" in closing(result)


@pytest.mark.parametrize(
    ("family", "pairing", "first"),
    [
        ("deepseek_v32", "halves", 0), ("glm_moe_dsa", "adjacent", 0), ("dots3_note_text", "adjacent", 0),
        ("hy_v4", "halves", 112), (M3, "halves", 0),
    ],
)  # fmt: skip
def test_the_measured_rotation_is_that_of_the_code(family, pairing, first):
    model = model_of(family)
    turning = found(model).indexers[0].effective.turning
    wanted = next(x for name, x in model.named_buffers() if name.endswith("inv_freq")).double()
    assert turning.pairing == pairing
    assert (turning.start, turning.width) == (first, 2 * len(wanted))
    assert torch.tensor(turning.frequencies).double() == pytest.approx(wanted, rel=1e-4)


def at_half_the_places(own, q, k, c, s):
    places = torch.arange(q.shape[2]) // 2
    return own(q, k, c[:, places], s[:, places])


def of_head_1(own, q, k, c, s):
    turned, keys = own(q, k, c, s)
    return torch.cat([turned[:, :1], q[:, 1:2], turned[:, 2:]], 1), keys


# By name: family, what is injected, the code and a part of the message.
FAULTS = {
    "neighbours for halves": (
        "deepseek_v32", lambda own, q, k, c, s: (interleaved(q, c, s), interleaved(k, c, s)), "SPE104",
        "pairing: halves declared, adjacent effective",
    ),
    "halves for neighbours": (
        "glm_moe_dsa", lambda own, q, k, c, s: (in_halves(q, c, s), in_halves(k, c, s)), "SPE104",
        "pairing: adjacent declared, halves effective",
    ),
    "halves for neighbours in dots": (
        "dots3_note_text", lambda own, q, k, c, s: (in_halves(q, c, s), in_halves(k, c, s)), "SPE104",
        "pairing: adjacent declared, halves effective",
    ),
    "not rotated": ("hy_v4", lambda own, q, k, c, s: (q, k), "SPE110", "none effective"),
    "keys not rotated": (
        "deepseek_v32", lambda own, q, k, c, s: (own(q, k, c, s)[0], k), "SPE109", "keys alone",
    ),
    "backwards": (M3, lambda own, q, k, c, s: own(q, k, c, -s), "SPE107", "1 declared, -1 effective"),
    "keys a position ahead": (
        "deepseek_v32", lambda own, q, k, c, s: (own(q, k, c, s)[0], own(q, k, *later(c, s, 1))[1]), "SPE108",
        "keys",
    ),
    "positions halved": (
        "glm_moe_dsa", at_half_the_places, "SPE111", "positions",
    ),
    "factor on the rotation": (
        "deepseek_v32", lambda own, q, k, c, s: own(q, k, 1.2 * c, 1.2 * s), "SPE103",
        "1 declared, 1.2 effective",
    ),
    "one head of queries": ("deepseek_v32", of_head_1, "SPE109", "queries of head 1"),
}  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_of_the_indexer_leaves_its_layer_right_and_is_named(name, monkeypatch):
    family, change, expected, message = FAULTS[name]
    model = model_of(family)
    indexing(change)(model, monkeypatch)
    result = found(model)
    assert {one.verdict for one in result.layers} == {"matches"}
    assert {one.code for one in result.records} == {expected}, [str(one) for one in result.records]
    assert {one.where for one in result.records} == {f"layer {one.name}" for one in result.indexers}
    assert all(message in one.message for one in result.records), result.records[0].message
    assert all("no other choice of keys" in one.impact.reason for one in result.records)


def test_a_fault_in_one_layer_is_named_there(monkeypatch):
    model = model_of("deepseek_v32")
    indexing(lambda own, q, k, c, s: (q, k), (1,))(model, monkeypatch)
    assert [(one.where, one.layer) for one in found(model).records] == [("layer indexer 1", 1)]


def test_the_layout_that_a_configuration_declares_is_the_wanted_one():
    model = model_of("glm_moe_dsa")
    model.config.indexer_rope_interleave = False  # which the library does not read
    records = found(model).records
    assert {one.code for one in records} == {"SPE104"}
    assert "pairing: halves declared, adjacent effective" in records[0].message


def test_what_enters_no_such_product_is_named_as_not_checked():
    config = small_config("deepseek_v4")
    config.layer_types = ["compressed_sparse_attention", "heavily_compressed_attention"]
    torch.manual_seed(0)
    result = found(transformers.DeepseekV4ForCausalLM(config).eval())
    assert result.indexers == ()
    assert any("layers.0.self_attn.compressor.indexer" in words for words in result.unexercised)


def test_the_model_is_left_as_it_was():
    model = model_of("deepseek_v32")
    found(model)
    assert all("forward" not in module.__dict__ for module in model.modules())


def test_the_record_serialises_and_the_command_shows_it(tmp_path, capsys):
    model_of("deepseek_v32").save_pretrained(tmp_path / "model")
    page = tmp_path / "audit.html"
    assert main(["audit", str(tmp_path / "model"), "--length", "64", "--out", str(page)]) == 0
    assert "indexer 1" in capsys.readouterr().out
    assert "indexer 1" in page.read_text(encoding="utf-8")
    record = json.loads(json.dumps(found(model_of("deepseek_v32")).to_dict()))["indexers"][0]
    assert record["module"] == "layers.0.self_attn.indexer"
    assert record["effective"]["turning"]["base"] == pytest.approx(1e4, rel=1e-3)


def test_a_lock_holds_indexers(tmp_path, monkeypatch):
    model = model_of("deepseek_v32")
    held = read_lock(write_lock(lock(model, length=48, watch=unwatched), tmp_path / "spectrope.lock"))
    assert [one.name for one in held.layers] == ["0", "1", "indexer 0", "indexer 1"]
    assert checked(held, model, unwatched).whole
    plain = [one for one in held.layers if not one.name.startswith("indexer")]
    earlier = replace(held, layers=tuple(plain), kinds=())  # Of a version that held no indexers.
    assert checked(earlier, model, unwatched).whole
    assert not checked(replace(held, layers=tuple(plain)), model, unwatched).whole
    indexing(FAULTS["neighbours for halves"][1])(model, monkeypatch)
    moves = checked(held, model, unwatched).moves
    assert [(move.where, move.code) for move in moves] == [
        ("layer indexer 0", "SPE104"), ("layer indexer 1", "SPE104"),
    ]  # fmt: skip
