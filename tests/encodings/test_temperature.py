"""Temperature of queries, against Ministral 3 and Llama 4."""

import math

import pytest
import torch
from tests.encodings.sampled import D, H, draw
from torch.testing import assert_close
from transformers import Llama4TextConfig
from transformers.models.llama4 import modeling_llama4
from transformers.models.ministral3 import modeling_ministral3

from spectrope.core.errors import ConfigError
from spectrope.encodings.temperature import Temperature


def test_steps_are_those_of_ministral_3():
    config = Temperature.Config(strength=0.3, window=4, offset=0)
    q, pos = draw(1, H, 20, D), torch.arange(20)[None]
    expected = q * modeling_ministral3.get_llama_4_attn_scale(pos.double(), 0.3, 4)
    assert_close(config.build().rotate(q, pos, "query"), expected)
    assert config.build().rotate(q, pos, "key") is q


def test_differences_of_logits_grow_as_in_llama_4():
    """Of two keys, in a layer that does not rotate, with its temperature and without."""
    sizes = {"hidden_size": 8, "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 8}
    sizes |= {"floor_scale": 3, "attn_scale": 0.4, "no_rope_layers": [0], "num_hidden_layers": 1}
    x, differences = draw(1, 12, 8).float(), []
    for tuned in (True, False):
        torch.manual_seed(0)
        config = Llama4TextConfig(**sizes, attn_temperature_tuning=tuned, attn_implementation="eager")
        _, pattern = modeling_llama4.Llama4TextAttention(config, 0).eval()(x, None, None)
        differences.append(pattern[0, 0, :, 1].log() - pattern[0, 0, :, 0].log())
    ours = Temperature(strength=0.4, window=3).rotate(draw(1, 1, 12, 1) * 0 + 1, torch.arange(12), "query")
    assert_close(differences[0] / differences[1], ours.flatten().float(), atol=1e-3, rtol=1e-3)


def test_smooth_growth_by_hand():
    ones, pos = torch.ones(1, 1, 3, 1), torch.tensor([0, 7, 63])
    factors = Temperature(strength=0.5, window=8, growth="smooth").rotate(ones, pos, "query").flatten()
    assert factors.tolist() == pytest.approx([1, 1, 1 + 0.5 * math.log(8)])


def test_what_breaks_a_rule_is_refused():
    with pytest.raises(ConfigError, match="window must be at least 1; got 0"):
        Temperature.Config(window=0)
