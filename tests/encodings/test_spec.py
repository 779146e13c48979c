"""Encodings in a line of text."""

import pytest

from spectrope.core.errors import ConfigError, UnknownNameError
from spectrope.encodings import ALiBi, Geometric, LongRoPE, NoPE, PerLayer, RoPE, Sinusoidal, Sum, YaRN
from spectrope.encodings.per_head import Group, PerHead
from spectrope.encodings.spec import parse_encoding, parse_positions, read_value, split_sizes
from spectrope.lab.training.scales import experiment


@pytest.mark.parametrize(
    ("spec", "config"),
    [
        ("rope", RoPE.Config()),
        ("RoPE", RoPE.Config()),
        ("rope:yarn", RoPE.Config(schedule=YaRN())),
        ("rope:yarn,factor=8,trained_length=64", RoPE.Config(schedule=YaRN(factor=8.0, trained_length=64))),
        ("rope:pairs=halves:geometric,base=500", RoPE.Config(pairs="halves", schedule=Geometric(base=500.0))),
        ("alibi:learned=true", ALiBi.Config(learned=True)),
        ("sum:rope+sinusoidal", Sum.Config(parts=(RoPE.Config(), Sinusoidal.Config()))),
        (
            "sum:rope:yarn,factor=2+alibi",
            Sum.Config(parts=(RoPE.Config(schedule=YaRN(factor=2.0)), ALiBi.Config())),
        ),
        ("per_head:rope=4", PerHead.Config(groups=(Group(heads=4, encoding=RoPE.Config()),))),
        (
            "per_head:rope:yarn,factor=2=4+alibi=20",
            PerHead.Config(
                n_heads=24,
                groups=(
                    Group(heads=4, encoding=RoPE.Config(schedule=YaRN(factor=2.0))),
                    Group(heads=20, encoding=ALiBi.Config()),
                ),
            ),
        ),
        (
            "rope:longrope,long_factors=[1, 2],short_factors=[1, 1]:head_dim=4",
            RoPE.Config(head_dim=4, schedule=LongRoPE(long_factors=(1.0, 2.0), short_factors=(1.0, 1.0))),
        ),
        (
            'sum:rope:schedule={"kind": "yarn", "factor": 8}+alibi',
            Sum.Config(parts=(RoPE.Config(schedule=YaRN(factor=8.0)), ALiBi.Config())),
        ),
        ("per_layer:rope+nope", PerLayer.Config(layers=(RoPE.Config(), NoPE.Config()))),
    ],
)
def test_a_line_describes_a_configuration(spec, config):
    assert parse_encoding(spec) == config


@pytest.mark.parametrize(
    ("spec", "error", "message"),
    [
        ("ropee", UnknownNameError, "unknown encoding 'ropee'; did you mean rope"),
        ("rope:yarm", UnknownNameError, "unknown part 'yarm'; did you mean yarn"),
        ("rope:yarn,facto=8", ConfigError, "YaRN has no field 'facto'; did you mean factor"),
        (
            "rope:base=100",
            ConfigError,
            r"has no field 'base', but its schedule geometric has; write rope:geometric,base=100\.",
        ),
        ("rope:yarn:base=5", ConfigError, r"its schedule yarn has; write rope:yarn,base=5\."),
        ("rope:frequencies=yarn", ConfigError, "RoPE.Config has no field 'frequencies'"),
        ("rope:yarn,8", ConfigError, "'8' is no setting; write it as field=value"),
        ("rope:yarn,factor=0.5", ConfigError, "factor must be at least 1"),
        ("alibi:learne=true", ConfigError, "has no field 'learne'; did you mean learned"),
        ("nope:yarn", ConfigError, "Config has no field 'yarn'"),
        ("per_head:rope", ConfigError, "numbers of heads, such as rope=4; got 'rope'"),
        ("per_head:rope=0", ConfigError, "heads must be at least 1; got 0"),
        ("per_head:rope=4+nop=2", UnknownNameError, "did you mean nope"),
        ("sum:rope+sinusoida", UnknownNameError, "did you mean sinusoidal"),
        ("rope:yarn,factor=8,factor=9", ConfigError, "'factor=8,factor=9' gives factor twice"),
        ("alibi:learned=true,learned=false", ConfigError, "gives learned twice"),
        ("partial_dims:fraction=0.2", ConfigError, r"PartialDims.Config.fraction=0.2 of 16 coordinates is 3"),
    ],
)
def test_a_wrong_line_is_refused_by_what_is_wrong(spec, error, message):
    with pytest.raises(error, match=message):
        parse_encoding(spec)


@pytest.mark.parametrize(
    ("text", "value"),
    [("0.001", 0.001), ("1e-3", 0.001), ("true", True), ("halves", "halves"), ("[1, 2]", [1, 2])],
)
def test_values_are_json_or_text(text, value):
    assert read_value(text) == value


def test_an_experiment_is_called_by_what_was_typed():
    one = experiment("distance", "rope:yarn,factor=8")
    assert one.encoding_name == "rope:yarn,factor=8"
    assert one.model.encoding.schedule == YaRN(factor=8.0)
    assert experiment("distance", "mla+rope:yarn").model.encoding.schedule == YaRN()
    with pytest.raises(UnknownNameError, match="did you mean rope"):
        experiment("distance", "ropee:yarn")


@pytest.mark.parametrize(
    ("spec", "refused"),
    [
        ("rope:head_dim=64", "sets head_dim to 64, but the model sets it to 16"),
        ("fope:max_length=4096", "sets max_length to 4096, but the model sets it to 32"),
        ("t5:causal=false", "sets causal to False, but the model sets it to True"),
        ("rope:yarn,factor=8:head_dim=64", "sets head_dim to 64"),
    ],
)
def test_sizes_that_a_model_would_replace_are_refused(spec, refused):
    with pytest.raises(ConfigError, match=refused):
        experiment("distance", spec)
    assert experiment("distance", "rope:head_dim=16").model.encoding.head_dim == 16


def test_sizes_are_told_from_the_rest_of_a_text():
    assert split_sizes("rope:yarn,factor=8:head_dim=64,pairs=halves") == (
        "rope:yarn,factor=8:pairs=halves",
        {"head_dim": 64},
    )
    assert split_sizes("alibi") == ("alibi", {})
    with pytest.raises(ConfigError, match="gives n_heads twice"):
        split_sizes("alibi:n_heads=2,n_heads=4")


def test_a_position_rule_takes_each_setting_once():
    with pytest.raises(ConfigError, match="gives max_shift twice"):
        parse_positions("shifted,max_shift=5,max_shift=9")


@pytest.mark.parametrize("name", ["p-rope", "P_ROPE", "PRoPE"])
def test_combinations_are_spelled_freely(name):
    assert parse_encoding(name) == parse_encoding("rope:proportional")
