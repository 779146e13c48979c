"""Each switch throws one divergence; a condition is the switches that it names, and nothing else."""

from dataclasses import fields

import pytest
import torch

from spectrope.attention.latent import Latent
from spectrope.core.config import config_hash, to_dict
from spectrope.core.errors import ConfigError, UnknownNameError
from spectrope.encodings.alibi import ALiBi
from spectrope.encodings.base import ENCODINGS
from spectrope.lab.runs import build_model
from spectrope.lab.training.scales import SCALES, experiment
from spectrope.models.decoder import SITES
from spectrope.study.conditions import SWITCHES, TEXT, THROWN, alone


def flat(value: object, prefix: str = "") -> dict[str, object]:
    if not isinstance(value, dict):
        return {prefix: value}
    return {k: v for key, inner in value.items() for k, v in flat(inner, f"{prefix}/{key}").items()}


def differences(task: str, encoding: str, switch: str) -> dict[str, object]:
    before = experiment(task, encoding)
    after = SWITCHES[switch](before)
    old, new = flat(to_dict(before)), flat(to_dict(after))
    return {key: new.get(key) for key in old.keys() | new.keys() if old.get(key) != new.get(key)}


@pytest.mark.parametrize(
    ("switch", "encoding", "field", "value"),
    [
        ("R1", "rope", "/model/causal", False),
        ("R2", "rope", "/model/memory", "embeddings"),
        ("R3", "rope", "/model/encoding/kind", "sum"),
        ("R4", "t5", "/model/encoding/kind", "relative"),
        ("R5", "alibi", "/model/encoding/slopes", "exponential"),
        ("R6", "random", "/model/encoding/trainable", True),
        ("R7", "rope", "/model/padding", "visible"),
        ("R8", "rope", "/task/fillers", "any"),
        ("R11", "mla", "/model/attention/rotary_queries", "shared"),
        ("R13", "rope", "/model/classes", "vocabulary"),
        ("R13", "mla", "/model/classes", "vocabulary_with_zero"),
        ("R14", "mla", "/model/feed_forward", "gelu"),
        ("R15", "rope", "/training/betas", [0.98, 0.9]),
        ("R16", "rope", "/model/dropout_at", ["pattern", "attention", "feed_forward"]),
        ("R16", "mla", "/model/dropout_at", ["hidden", "feed_forward"]),
        ("R7", "mla", "/model/final_norm", True),
    ],
)
def test_a_switch_changes_its_own_field(switch, encoding, field, value):
    changed = differences("distance", encoding, switch)
    assert changed[field] == value
    assert {key for key in changed if not key.startswith("/model/encoding")} <= {field}


@pytest.mark.parametrize(
    ("switch", "untouched"),
    [
        ("R3", "alibi"),
        ("R2", "mla"),
        ("R3", "mla"),
        ("R3", "per_head"),
        ("R4", "rope"),
        ("R5", "t5"),
        ("R6", "learned"),
        ("R11", "rope"),
        ("R11", "mla+alibi"),
        ("R14", "rope"),
        ("R17", "rope"),
    ],
)
def test_a_switch_of_one_encoding_leaves_the_others(switch, untouched):
    assert differences("distance", untouched, switch) == {}


def test_ambiguous_fillers_concern_task_one_alone():
    assert differences("counting", "rope", "R8") == {}


def test_the_released_input_term_is_the_concatenated_sinusoid():
    encoding = experiment("distance", "rope", condition="released").model.encoding
    parts = {part["kind"]: part for part in to_dict(encoding)["parts"]}
    assert parts["sinusoidal"]["layout"] == "halves"
    assert parts["sinusoidal"]["d_model"] == SCALES["mini"]["distance"].model.d_model
    assert list(parts) == ["rope", "sinusoidal"]


@pytest.mark.parametrize("scale", list(SCALES))
def test_latent_attention_has_half_the_width_of_the_stream(scale):
    one = experiment("distance", "mla", scale=scale)
    half = one.model.d_model // 2
    assert one.model.attention == Latent.Config(latent=half, query_latent=half)
    assert (one.encoding_name, one.model.encoding.kind) == ("mla", "rope")
    assert one.model.padding == "masked"


def test_latent_attention_takes_other_encodings_and_other_widths():
    given = experiment("distance", ALiBi.Config(), attention=Latent.Config(latent=32, query_latent=32))
    assert experiment("distance", "mla+alibi") == given
    assert given.encoding_name == "mla+alibi"
    assert experiment("distance", "multi_head+t5") == experiment("distance", "t5")


def test_released_latent_attention():
    model = experiment("distance", "mla", condition="released").model
    assert [part["kind"] for part in to_dict(model.encoding)["parts"]] == ["misread_rope", "learned"]
    assert model.encoding.parts[0].head_dim == model.attention.rotary_dim
    assert (model.causal, model.memory, model.padding, model.final_norm) == (False, "hidden", "masked", True)
    assert (model.attention.latent_norm, model.output_bias, model.ignored_label) == (False, False, None)
    assert model.encoding.parts[1].std == 0.0


def test_described_latent_attention_is_deepseeks_without_a_norm_after_the_last_layer():
    model = experiment("distance", "mla", condition="described").model
    assert model.encoding == experiment("distance", "mla").model.encoding
    assert (model.causal, model.memory, model.padding, model.final_norm) == (True, "hidden", "masked", False)
    assert (model.attention.latent_norm, model.output_bias) == (True, False)
    assert (model.feed_forward, model.dropout_at) == ("gelu", ("hidden", "feed_forward"))


@pytest.mark.parametrize("scale", list(SCALES))
@pytest.mark.parametrize("encoding", ["rope", "mla"])
def test_betas_and_sites_of_dropout_are_as_stated_at_every_scale(scale, encoding):
    controlled, described, released = (
        experiment("distance", encoding, scale=scale, condition=condition) for condition in THROWN
    )
    usual = (0.98, 0.9) if scale == "mid" else (0.9, 0.98)  # The plan keeps the paper's at `mid`.
    assert controlled.training.betas == usual
    assert controlled.model.dropout_at == SITES
    assert described.training.betas == released.training.betas == (0.98, 0.9)
    assert described.model.dropout_at == released.model.dropout_at != SITES


def test_where_the_text_is_silent_its_code_speaks():
    assert set(TEXT) == {"R7", "R8", "R13", "R14", "R15", "R16", "R17"}
    same = {name for name in TEXT if TEXT[name] is SWITCHES[name]}
    assert set(TEXT) - same == {"R7", "R17"}


def test_bare_latents_have_no_norm_no_bias_and_learned_positions_that_start_at_zero():
    changed = differences("distance", "mla", "R17")
    assert changed == {"/model/attention/latent_norm": False, "/model/output_bias": False}
    learned = SWITCHES["R17"](SWITCHES["R11"](experiment("distance", "mla"))).model.encoding.parts[1]
    assert not learned.build().table.any()


def test_tables_of_the_public_code_start_as_it_draws_them():
    relative, random = (
        build_model(experiment("distance", name, condition="released", scale="paper"), torch.device("cpu"))
        for name in ("t5", "random")
    )
    lags, positions = (model.encoding_of(0).table for model in (relative, random))
    assert lags.shape == (2 * relative.config.max_length - 1, 16)
    assert lags.std().item() == pytest.approx(0.02, rel=0.05)
    assert positions.std().item() == pytest.approx(1.0, rel=0.05)
    assert lags.requires_grad
    assert positions.requires_grad


def test_a_switch_alone_is_a_condition_of_its_name():
    base = experiment("distance", "mla")
    assert alone("R4", base) is base
    assert alone("R1", base).condition == "R1"
    assert [alone(name, base).edition for name in ("R1", "R13", "R14", "R16")] == [1, 2, 2, 1]
    assert [alone("R13", experiment("distance", "rope")).edition, base.edition] == [1, 1]


@pytest.mark.parametrize("condition", list(THROWN))
def test_conditions_are_their_switches(condition):
    for task in SCALES["mini"]:
        if condition in ("described", "released") and experiment(task, "rope").task.build().n_classes < 3:
            with pytest.raises(
                ConfigError, match="leaves label 0 out of loss and accuracy, so that one would be left"
            ):
                experiment(task, "rope", condition=condition)
            continue
        for encoding in ("nope", "rope", "t5", "alibi", "random", "mla"):
            expected = experiment(task, encoding)
            for name in THROWN[condition]:
                expected = THROWN[condition][name](expected)
            got = experiment(task, encoding, condition=condition)
            assert (got.task, got.model, got.training) == (expected.task, expected.model, expected.training)


def test_conditions_and_scales_and_seeds_and_encodings_are_other_runs():
    runs = [
        experiment("distance", encoding, scale=scale, condition=condition, seed=seed)
        for encoding in (*ENCODINGS, "mla", "mla+alibi", "mla+t5")
        if encoding not in {"sum", "path"}  # a sum of RoPE is RoPE's R3, and PaTH has no bidirectional form
        for scale in SCALES
        for condition in THROWN
        for seed in (0, 1)
    ]
    assert len({config_hash(run) for run in runs}) == len(runs)


def test_the_paper_scale_has_the_paper_settings():
    one = experiment("distance", "rope", scale="paper", condition="described")
    assert (one.n_train, one.n_test, one.training.epochs) == (70_000, 30_000, 100)
    assert (one.model.d_model, one.model.n_layers, one.model.n_heads, one.model.d_ff) == (256, 6, 16, 512)
    assert (one.training.learning_rate, one.training.betas) == (1e-4, (0.98, 0.9))
    assert (one.model.vocabulary, one.model.n_outputs) == (574, 574)
    assert experiment("counting", "rope", scale="paper").training.epochs == 150


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({"task": "distanse"}, "unknown task 'distanse'; did you mean distance"),
        ({"encoding": "ropee"}, "unknown encoding 'ropee'; did you mean rope"),
        ({"encoding": "mlaa"}, "unknown encoding 'mlaa'; did you mean mla"),
        ({"encoding": "mla+ropee"}, "unknown encoding 'ropee'; did you mean rope"),
        ({"scale": "minny"}, "unknown scale 'minny'; did you mean mini"),
        ({"condition": "released2"}, "unknown condition 'released2'; did you mean released"),
    ],
)
def test_unknown_names_suggest_the_nearest(names, message):
    chosen = {"task": "distance", "encoding": "rope", **names}
    with pytest.raises(UnknownNameError, match=message):
        experiment(**chosen)


def test_every_field_of_a_preset_reaches_the_experiment():
    preset = SCALES["small"]["counting"]
    one = experiment("counting", "nope", scale="small")
    assert (one.task, one.training, one.n_train + one.n_test) == (
        preset.task,
        preset.training,
        preset.n_examples,
    )
    kept = {f.name for f in fields(preset.model)} - {"encoding", "vocabulary", "n_labels", "max_length"}
    assert all(getattr(one.model, name) == getattr(preset.model, name) for name in kept)
