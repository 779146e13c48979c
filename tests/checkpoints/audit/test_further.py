"""Passes after the first: cross-attention, and fewer tokens after more."""

import pytest
import torch
from tests.checkpoints.audit.families import FAMILIES
from tests.checkpoints.audit.injections import attending
from tests.checkpoints.audit.test_injections import model_of
from tests.checkpoints.audit.zoo import in_precision
from torch import nn
from torch.nn.functional import scaled_dot_product_attention
from transformers.models.llama import modeling_llama

from spectrope.checkpoints.adapters.own import OwnModel
from spectrope.checkpoints.audit import audit
from spectrope.checkpoints.audit.further import CROSSING, FEWER
from spectrope.checkpoints.audit.text import closing

LENGTH = 96


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("family", ["t5", "bart", "m2m_100", "fsmt", "t5gemma", "led", "bigbird_pegasus"])
def test_cross_attention_of_unmodified_models_knows_no_positions(family, dtype):
    found = audit(in_precision(model_of(family), dtype), length=LENGTH, serving_modes=False)
    assert found.outcome == "matches"
    assert CROSSING in found.further


def test_a_model_of_one_stack_has_no_cross_attention():
    assert CROSSING not in audit(FAMILIES["llama-default"](), length=LENGTH).further


def test_a_causal_mask_in_cross_attention_is_named(monkeypatch):
    model = model_of("bart")

    def causal(own, q, k, v, mask, given):
        return own(q, k, v, torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril()[None, None])

    attend = model.model.decoder.layers[1].encoder_attn
    forward = attend.forward

    def masked(*args, **given):
        with pytest.MonkeyPatch.context() as patch:
            attending(causal)(model, patch)
            return forward(*args, **given)

    monkeypatch.setattr(attend, "forward", masked)
    found = [(where, finding.what, finding.code) for where, finding in audit(model, length=LENGTH).findings]
    assert found == [("layer decoder 1", "mask of cross-attention", "SPE116")]


def test_the_last_block_of_a_kernel_is_seen_where_it_is_not_whole(monkeypatch):
    """The first pass has only whole blocks."""
    own = modeling_llama.apply_rotary_pos_emb

    def whole_blocks(q, k, cos, sin, **given):
        n = cos.shape[-2] // 64 * 64 or cos.shape[-2]
        turned = own(q, k, cos, sin, **given)
        return tuple(torch.cat([y[:, :, :n], x[:, :, n:]], 2) for x, y in zip((q, k), turned, strict=True))

    monkeypatch.setattr(modeling_llama, "apply_rotary_pos_emb", whole_blocks)
    found = audit(FAMILIES["llama-default"](), length=128, serving_modes=False, reach=False)
    assert {(where, finding.code) for where, finding in found.findings} == {
        ("layer 0", "SPE111"),
        ("layer 1", "SPE111"),
    }
    said = f"in a pass of {FEWER} tokens after longer ones"
    assert all(said in finding.note for _, finding in found.findings)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(32, 96)

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (4, 8)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        return scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)


class OfOneLength(nn.Module):
    """A model that takes 64 tokens, and a few, with which its attention is sought."""

    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(50, 32), nn.Embedding(64, 32)
        self.attention, self.head = Attention(), nn.Linear(32, 50)

    def forward(self, ids):
        n = ids.shape[1]
        assert n in (1, 4, 64)
        return self.head(self.attention(self.tokens(ids) + self.places(torch.arange(n))))


def test_a_model_of_one_length_is_audited_at_that_length():
    found = audit(OwnModel(OfOneLength(), vocabulary=50, encoding="learned"), length=64)
    assert found.outcome == "matches"
    assert "fewer tokens (48), with which the model did not run" in found.unexercised
    assert "the model did not run" in closing(found)


def test_one_layer_of_each_kind_is_compared_and_all_where_one_differs(monkeypatch):
    """Layers 0 and 2 slide, and turn by a base of their own."""
    model = FAMILIES["gemma3"]()
    rotary = model.model.rotary_emb
    own = rotary.forward

    def short_texts_by_global_base(x, position_ids, layer_type=None):
        kind = "full_attention" if x.shape[1] < LENGTH else layer_type
        return own(x, position_ids, kind)

    monkeypatch.setattr(rotary, "forward", short_texts_by_global_base)
    found = audit(model, length=LENGTH, serving_modes=False, reach=False)
    assert {where for where, _ in found.findings} == {"layer 0", "layer 2"}
