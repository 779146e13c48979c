"""Recent encodings in the classes of transformers that apply them: matches, and faults that are named."""

import pytest
import torch
from tests.checkpoints.audit.zoo import LENGTH, Variant, build
from transformers.models.diffllama import modeling_diffllama
from transformers.models.ministral3 import modeling_ministral3

from spectrope.checkpoints.audit import audit


def found(model):
    """Outcome of an audit, and its findings as text."""
    result = audit(model, length=LENGTH)
    return result.outcome, [str(finding) for _, finding in result.findings]


class TestDifferentialAttention:
    def test_both_patterns_of_diffllama_rotate_as_declared(self):
        assert found(build(Variant("diffllama", "causal"))) == ("matches", [])

    def test_a_second_pattern_that_does_not_rotate_is_named_by_its_heads(self, monkeypatch):
        rotated = modeling_diffllama.apply_rotary_pos_emb

        def first_alone(q, k, cos, sin, **settings):
            return tuple(
                torch.cat([turned[:, : len(x[0]) // 2], x[:, len(x[0]) // 2 :]], 1)
                for x, turned in zip((q, k), rotated(q, k, cos, sin, **settings), strict=True)
            )

        monkeypatch.setattr(modeling_diffllama, "apply_rotary_pos_emb", first_alone)
        outcome, findings = found(build(Variant("diffllama", "causal")))
        assert outcome == "differs"
        for place in ("queries of head 2", "queries of head 3", "keys of key-value head 1"):
            assert any(f"rotation of {place}" in finding for finding in findings)
        assert not any("head 0" in finding or "queries of head 1" in finding for finding in findings)


class TestTemperature:
    def model(self):
        config = build(Variant("ministral3", "causal")).config
        grows = {"llama_4_scaling_beta": 0.5, "original_max_position_embeddings": 16, "rope_type": "default"}
        config.rope_parameters |= grows
        del config.rope_parameters["factor"]  # Of the scaling that it has by default.
        torch.manual_seed(0)
        return modeling_ministral3.Ministral3ForCausalLM(config).eval()

    def test_queries_of_ministral_3_grow_as_declared(self):
        assert found(self.model()) == ("matches", [])

    def test_growth_by_another_factor_is_named(self, monkeypatch):
        declared = modeling_ministral3.get_llama_4_attn_scale
        monkeypatch.setattr(
            modeling_ministral3, "get_llama_4_attn_scale", lambda pos, beta, n: declared(pos, 2 * beta, n)
        )
        outcome, findings = found(self.model())
        assert outcome == "differs"
        assert "query scale: grows to 1.5493 declared, grows to 2.0986 effective" in findings[0]


@pytest.mark.parametrize("family", ["bailing_hybrid", "kimi_linear"])
def test_decays_that_tokens_gate_are_left_out_by_layer(family):
    result = audit(build(Variant(family, "causal")), length=LENGTH)
    assert len(result.without) == 1
    assert "no softmax attention ran on tokens alone, so not audited" in str(result)


@pytest.mark.parametrize("family", ["gemma4_text", "lfm3"])
def test_pairs_that_stand_still_are_seen(family):
    result = audit(build(Variant(family, "causal")), length=LENGTH)
    assert result.outcome == "matches"
    assert "the slowest pairs do not rotate" in str(result)
