"""Encoders of sounds: audits of every form, faults in them, and what does not apply to them."""

import pytest
import torch
import transformers
from tests.checkpoints.audit.sounds import LENGTH, SOUNDS, encoder, whisper_config
from tests.checkpoints.audit.zoo import DTYPES, in_precision
from transformers.models.glmasr import modeling_glmasr
from transformers.models.moonshine import modeling_moonshine
from transformers.models.voxtral_realtime import modeling_voxtral_realtime

from spectrope.checkpoints.adapters import drawable_tokens
from spectrope.checkpoints.adapters.sounds import FORMS
from spectrope.checkpoints.audit import audit
from spectrope.checkpoints.audit.text import closing
from spectrope.checkpoints.lock import FILE, lock, read_lock
from spectrope.checkpoints.lock.opening import checked
from spectrope.cli import main
from spectrope.core.errors import ConfigError, UnsupportedError

WITH_TABLES = {"audioflamingo3", "qwen2_audio", "voxtral", "whisper"}


def test_every_form_has_an_encoder_here():
    assert {type(encoder(name)).__name__ for name in SOUNDS} == set(FORMS)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", SOUNDS)
def test_an_unmodified_encoder_matches(name, dtype):
    found = audit(in_precision(encoder(name), dtype), length=LENGTH)
    assert found.ok, str(found)
    assert len(found.layers) == 2
    (kind,) = {layer.effective.kind for layer in found.layers}
    assert kind == {"parakeet": "relative term"}.get(name, "none" if name in WITH_TABLES else "rotary")
    assert [one.first_row for one in found.absolutes] == [0 if name in WITH_TABLES else None]
    said = closing(found)
    assert "fewer tokens" not in said
    assert ("fewer positions (54)" in said) == (name not in WITH_TABLES)
    assert "positions from 72 on; serving modes" in said
    assert "what convolutions before the layers say of the position; padded, chunked and other sounds" in said


def rotated_otherwise(module, change):
    """A family's rotation, changed."""

    def inject(model, patch):
        own = module.apply_rotary_pos_emb
        patch.setattr(module, "apply_rotary_pos_emb", lambda *args, **given: change(own, *args, **given))

    return inject


def base_lost(model, patch):
    model.rotary_emb.inv_freq *= 0.5


def window_ignored(model, patch):
    patch.setattr(
        modeling_voxtral_realtime,
        "create_sliding_window_causal_mask",
        modeling_voxtral_realtime.create_causal_mask,
    )


def table_halved(model, patch):
    held = model.embed_positions.weight
    model.layers[0].register_forward_pre_hook(lambda _, args: (args[0] - held / 2, *args[1:]))


def lags(change):
    """Parakeet's sines and cosines of lags, changed."""

    def inject(model, patch):
        own = model.encode_positions.forward
        patch.setattr(model.encode_positions, "forward", lambda states: change(own, model, states))

    return inject


def of_other_base(model, patch):
    frequencies = model.encode_positions.inv_freq
    frequencies.copy_(frequencies**1.25)


def by_one(own, model, states):
    return own(torch.cat([states, states[:, :1]], 1))[:, :-2]


def sines_first(own, model, states):
    table = own(states)
    return torch.cat([table[..., ::2], table[..., 1::2]], -1)


def weights(change):
    """What every attention module of Parakeet holds, changed."""

    def inject(model, patch):
        for layer in model.layers:
            change(layer.self_attn, patch)

    return inject


def factor_lost(own, patch):
    plain = own._rel_shift
    patch.setattr(own, "_rel_shift", lambda scores: plain(scores) / own.scaling)


def one_head_mirrored(own, patch):
    plain = own._rel_shift

    def mirrored(scores):
        scores = scores.clone()
        scores[:, 1] = scores[:, 1].flip(-1)
        return plain(scores)

    patch.setattr(own, "_rel_shift", mirrored)


FAULTS = {
    "another base of sines": (
        "parakeet",
        of_other_base,
        "SPE303",
        "sines and cosines in turns, of base 10000 declared, base 100000",
    ),
    "sines, then cosines": ("parakeet", lags(sines_first), "SPE303", "sines, then cosines effective"),
    "lags of the other sign": (
        "parakeet",
        lags(lambda own, model, states: own(states).flip(1)),
        "SPE302",
        "those of the mirrored lags",
    ),
    "lags by one": ("parakeet", lags(by_one), "SPE302", "those of lags 1 larger"),
    "relative term without its factor": (
        "parakeet",
        weights(factor_lost),
        "SPE303",
        "4 times it",
    ),
    "frequencies halved": ("glmasr", base_lost, "SPE102", "linear by 2 effective"),
    "queries alone turn": (
        "glmasr",
        rotated_otherwise(modeling_glmasr, lambda own, q, k, *rest, **given: (own(q, k, *rest)[0], k)),
        "SPE109",
        "rotation of keys alone: as of the layer declared, none effective",
    ),
    "turned the other way": (
        "moonshine",
        rotated_otherwise(modeling_moonshine, lambda own, q, k, cos, sin, **given: own(q, k, cos, -sin)),
        "SPE107",
        "sense of rotation: 1 declared, -1 effective",
    ),
    "window ignored": (
        "voxtral_realtime",
        window_ignored,
        "SPE202",
        "causal window 30 declared, causal effective",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_named_in_every_layer(name, monkeypatch):
    form, inject, code, said = FAULTS[name]
    model = encoder(form)
    inject(model, monkeypatch)
    found = audit(model, length=LENGTH)
    assert {one.code for one in found.records} == {code}, found.records
    assert {one.layer for one in found.records} == {0, 1}
    assert said in found.records[0].message
    assert found.records[0].impact.reason == "an encoder of sounds predicts no tokens"


def test_a_relative_term_of_one_head_is_named(monkeypatch):
    model = encoder("parakeet")
    one_head_mirrored(model.layers[1].self_attn, monkeypatch)
    (record,) = audit(model, length=LENGTH).records
    assert (record.code, record.layer, record.head) == ("SPE302", 1, 1)


def test_a_wrong_factor_on_products_and_the_relative_term_is_named():
    model = encoder("parakeet")
    model.layers[1].self_attn.scaling *= 2
    (record,) = audit(model, length=LENGTH).records
    assert (record.code, record.layer) == ("SPE404", 1)


@pytest.mark.parametrize("name", ["qwen2_audio", "voxtral"])
@pytest.mark.parametrize("by", [1, 2])
def test_rows_that_are_added_elsewhere_are_named(name, by):
    model = encoder(name)
    held = model.embed_positions.weight.detach().clone()
    model.layers[0].register_forward_pre_hook(lambda _, args: (args[0] - held + held.roll(-by, 0), *args[1:]))
    (record,) = audit(model).records
    assert record.code == "SPE402"
    assert f"row 0 declared, row {by} effective" in record.message


@pytest.mark.parametrize("name", sorted(WITH_TABLES))
@pytest.mark.parametrize(("factor", "said"), [(0.0, "none effective"), (0.5, "0.5 times them effective")])
def test_a_table_that_is_not_added_or_scaled_is_named(name, factor, said):
    model = encoder(name)
    held = model.embed_positions.weight
    model.layers[0].register_forward_pre_hook(lambda _, args: (args[0] - (1 - factor) * held, *args[1:]))
    found = audit(model)
    (record,) = found.records
    assert record.code == "SPE401"
    assert said in record.message
    assert not found.unserved


def test_a_table_that_is_looked_up_and_changed_afterwards_is_no_match():
    model = encoder("whisper")
    held = model.embed_positions.weight
    model.layers[0].register_forward_pre_hook(lambda _, args: (args[0] - held + held.flip(1), *args[1:]))
    assert audit(model).outcome == "incomplete"


def test_positions_that_no_table_declares_are_not_called_a_match():
    model = encoder("glmasr")

    def add(_, args):
        return args[0] + torch.linspace(0, 1, args[0].shape[1])[:, None], *args[1:]

    model.layers[0].register_forward_pre_hook(add)
    found = audit(model, length=LENGTH)
    assert found.outcome == "incomplete"
    assert [one.verdict for one in found.absolutes] == ["undeclared"]


def test_a_sound_has_as_many_positions_as_asked_for():
    for name in ("glmasr", "moonshine", "pe_audio", "voxtral_realtime"):
        assert audit(encoder(name), length=41).length == 41
    assert audit(encoder("glmasr")).length == 512
    assert audit(encoder("whisper")).length == LENGTH


def test_what_does_not_apply_is_refused():
    model = encoder("whisper")
    with pytest.raises(ConfigError, match="takes sounds of 72 positions alone, so length must be that"):
        audit(model, length=50)
    with pytest.raises(ConfigError, match="audited on a sound, not on tokens, so text does not apply"):
        audit(model, text=[1] * 20)
    with pytest.raises(ConfigError, match="so serving_modes does not apply"):
        audit(model, serving_modes=True)


def test_a_whole_model_of_sounds_names_its_parts():
    model = transformers.WhisperModel(whisper_config()).eval()
    with pytest.raises(UnsupportedError, match="takes its parts by themselves: encoder, decoder"):
        audit(model)
    assert audit(model, part="encoder").ok
    found = audit(model, part="decoder")
    assert found.ok
    assert "decoding from caches and left padding (the class has no generate)" in found.unserved


def test_the_decoder_of_a_model_of_sounds_is_a_model_of_text_with_a_head(tmp_path):
    transformers.WhisperForConditionalGeneration(whisper_config()).save_pretrained(tmp_path)
    found = audit(transformers.WhisperForCausalLM.from_pretrained(tmp_path))
    assert found.ok
    assert found.unseen == ""
    assert {"cached decoding", "beam search", "static cache"} <= {one.mode for one in found.serving_modes}


def test_a_lock_names_its_part(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    transformers.WhisperForConditionalGeneration(whisper_config()).save_pretrained("whisper")
    assert main(["lock", "whisper", "--part", "encoder"]) == 0
    assert read_lock(FILE).part == "encoder"
    assert read_lock(FILE).config_sha256
    assert main(["check"]) == 0
    assert main(["audit", "whisper", "--part", "encoder", "--fix", "corrected"]) == 2


def test_an_encoder_within_a_model_of_texts_is_a_part_of_it(tmp_path):
    sizes = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    text = {"vocab_size": 200, "num_key_value_heads": 2, "max_position_embeddings": 256} | sizes
    own = {"d_model": 64, "encoder_layers": 2, "encoder_attention_heads": 4, "encoder_ffn_dim": 64}
    sound = own | {"max_source_positions": LENGTH, "num_mel_bins": 16}
    config = transformers.Qwen2AudioConfig(text_config=text, audio_config=sound, audio_token_index=190)
    transformers.Qwen2AudioForConditionalGeneration(config).save_pretrained(tmp_path)
    whole = audit(tmp_path, length=LENGTH, serving_modes=False)
    assert whole.ok
    told = "model.audio_tower, which takes other inputs than text (audit it as part model.audio_tower)"
    assert whole.unseen == told
    found = audit(tmp_path, part="audio_tower")
    assert found.ok
    assert (found.model, found.architecture) == (f"{tmp_path}, audio_tower", "qwen2_audio_encoder")
    assert {layer.effective.mask.shape for layer in found.layers} == {"bidirectional"}
    text_alone = audit(tmp_path, part="model.language_model", length=LENGTH, serving_modes=False)
    assert text_alone.ok
    assert text_alone.unseen == ""


@pytest.mark.parametrize(
    ("name", "change"), [("glmasr", base_lost), ("parakeet", of_other_base), ("qwen2_audio", table_halved)]
)
def test_a_lock_holds_an_encoder(name, change, monkeypatch):
    model = encoder(name)
    held = lock(model)
    assert checked(held, model).ok
    assert [len(layer.heads) for layer in held.layers] == [4, 4]
    change(model, monkeypatch)
    assert not checked(held, model).ok


def test_an_encoder_is_not_told_to_give_its_encoder():
    with pytest.raises(UnsupportedError, match="takes no tokens but input_features; give a model of text"):
        drawable_tokens(encoder("glmasr"))


def test_a_saved_encoder_is_audited(tmp_path):
    encoder("glmasr").save_pretrained(tmp_path)
    assert audit(tmp_path, length=LENGTH).ok
