"""Parts of a model that are models of their own, and what is refused."""

import pytest
import transformers

from spectrope.checkpoints.adapters.parts import models_within, part_of, shown_name
from spectrope.core import ConfigError

SIZES = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}


def whisper():
    layers = {"encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "d_model": 32}
    tokens = {"vocab_size": 50, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    config = transformers.WhisperConfig(**layers, **heads, **tokens, decoder_start_token_id=1)
    return transformers.WhisperForConditionalGeneration(config).eval()


def test_parts_are_named_as_within_the_whole():
    assert models_within(whisper()) == ["model.encoder", "model.decoder"]


def test_a_model_of_text_is_no_whole_of_parts():
    assert models_within(transformers.LlamaModel(transformers.LlamaConfig(vocab_size=50, **SIZES))) == []


@pytest.mark.parametrize("name", ["model.encoder", "encoder"])
def test_a_part_remembers_its_name(name):
    model = whisper()
    part = part_of(model, name)
    assert part is model.model.encoder
    assert shown_name(part) == f"WhisperEncoder, {name}"


@pytest.mark.parametrize("name", ["", "nothing", "proj_out", "model.encoder.layers"])
def test_what_is_no_model_is_refused_with_those_that_are(name):
    told = "part must name a model within WhisperForConditionalGeneration; got "
    with pytest.raises(ConfigError) as refused:
        part_of(whisper(), name)
    assert str(refused.value) == f"{told}{name!r}. It has these: model.encoder, model.decoder."
