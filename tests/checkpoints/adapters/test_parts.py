"""Parts of a model that are models of their own, and what is refused."""

import pytest
import transformers

from spectrope.checkpoints.adapters import open_model
from spectrope.checkpoints.adapters.parts import as_part, models_within, part_of, shown_name
from spectrope.checkpoints.adapters.structure import opened_from
from spectrope.checkpoints.audit import audit
from spectrope.checkpoints.lock import lock
from spectrope.core import ConfigError, unwatched

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
    known = "Models within it: model.encoder, model.decoder."
    assert str(refused.value) == f"{told}{name!r}. {known}"


def test_a_part_forgets_the_whole_when_it_has_been_looked_at():
    model = whisper()
    with as_part(model, "encoder") as part:
        assert shown_name(part) == "WhisperEncoder, encoder"
    assert shown_name(part) == "WhisperEncoder"
    assert not vars(part).keys() & {"whole_config", "part_name"}


def test_a_part_remembers_afterwards_what_it_did_before(tmp_path):
    transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=50, **SIZES)).save_pretrained(tmp_path)
    model = open_model(tmp_path)
    before = opened_from(model.model)
    assert before == str(tmp_path)
    with as_part(model, "model"):
        pass
    assert opened_from(model.model) == before


def bert():
    return transformers.BertConfig(vocab_size=50, **SIZES)


def two_berts():
    config = transformers.EncoderDecoderConfig.from_encoder_decoder_configs(bert(), bert())
    return transformers.EncoderDecoderModel(config).eval()


def t5():
    sizes = {"d_model": 32, "d_kv": 16, "d_ff": 32, "num_layers": 1, "num_heads": 2}
    return transformers.T5ForConditionalGeneration(transformers.T5Config(vocab_size=50, **sizes)).eval()


def gemmas():
    own = {"vocab_size": 50, "num_key_value_heads": 1, "head_dim": 16, "query_pre_attn_scalar": 16, **SIZES}
    config = transformers.T5GemmaConfig(
        encoder=own | {"rope_theta": 100.0}, decoder=own | {"rope_theta": 5000.0}, vocab_size=50
    )
    return transformers.T5GemmaForConditionalGeneration(config).eval()


@pytest.mark.parametrize(
    ("build", "name"),
    [
        (two_berts, "encoder"),
        (two_berts, "decoder"),
        (t5, "encoder"),
        (t5, "decoder"),
        (gemmas, "model.encoder"),
    ],
)
def test_a_part_is_compared_with_its_own_configuration(build, name):
    model = build()
    assert name in models_within(model)
    assert audit(model, part=name, length=32, watch=unwatched).ok


def test_a_lock_of_a_part_names_it_and_leaves_the_model_as_it_was():
    model = gemmas()
    held = lock(model, part="model.encoder", length=32, serving_modes=False, watch=unwatched)
    assert held.part == "model.encoder"
    assert held.layers[0].applies == "rotary, base 100"
    assert not vars(model.model.encoder).keys() & {"whole_config", "part_name"}


def test_the_file_of_a_part_is_the_part_of_the_file(tmp_path):
    gemmas().save_pretrained(tmp_path)
    found = audit(tmp_path, part="model.encoder", length=32, watch=unwatched)
    assert found.ok
    assert found.layers[0].declared.turning.base == 100.0


def roberta_and_gpt2():
    encoder = transformers.RobertaConfig(vocab_size=50, pad_token_id=1, max_position_embeddings=66, **SIZES)
    own = {"vocab_size": 50, "n_embd": 32, "n_layer": 1, "n_head": 2, "n_positions": 64}
    decoder = transformers.GPT2Config(**own, bos_token_id=2, eos_token_id=2)
    config = transformers.EncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)
    config.decoder_start_token_id, config.pad_token_id = 2, 1
    return transformers.EncoderDecoderModel(config).eval()


@pytest.mark.parametrize("build", [gemmas, roberta_and_gpt2])
def test_two_stacks_are_compared_with_a_configuration_each(build, tmp_path):
    build().save_pretrained(tmp_path)
    for model in (build(), tmp_path):
        found = audit(model, length=32, watch=unwatched)
        assert found.ok, found.records


def test_a_fault_of_one_stack_is_told_by_its_own_configuration():
    model = gemmas()
    others = dict(model.model.decoder.named_buffers())
    for name, frequencies in model.model.encoder.named_buffers():
        if "inv_freq" in name:
            frequencies.copy_(others[name])
    (record,) = audit(model, length=32, watch=unwatched).records
    assert (record.code, record.where) == ("SPE101", "layer encoder 0")
    assert "100 declared, 5000 effective" in record.message
