"""Declarations of an own model, as fields of a Hugging Face configuration."""

from collections.abc import Callable, Mapping
from typing import Any

from spectrope.checkpoints.adapters.declared_values import BASES
from spectrope.core import ConfigError, UnsupportedError
from spectrope.encodings import (
    ENCODINGS,
    ALiBi,
    EncodingConfig,
    Geometric,
    Learned,
    Linear,
    Llama3,
    NoPE,
    RoPE,
    Schedule,
    YaRN,
)

OWN = "own"
LEARNED = "own, learned table"  # The kind of model whose table of positions starts at row 0.
HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_num_attention_heads")
WIDTHS = ("hidden_size", "n_embd", "d_model")  # Of the hidden states.
HEAD_WIDTHS = ("head_dim", "attention_head_dim", "d_kv", "kv_channels")
Fields = dict[str, Any]


def declared_fields(encoding: str | EncodingConfig | Mapping[str, Any] | None) -> Fields:
    """Fields of a configuration that declares an encoding.

    Args:
        encoding: A name, which declares no sizes, a configuration, the fields themselves, or None for
            nothing.

    Raises:
        UnknownNameError: If no encoding has that name.
        UnsupportedError: If no field declares the encoding.
        ConfigError: If a field holds a base for each layer.
    """
    if encoding is None:
        return {"model_type": OWN}
    if isinstance(encoding, Mapping):
        for name in (name for name in BASES if isinstance(encoding.get(name), list)):
            raise ConfigError(f"OwnModel.encoding: {name} must be one number; got {encoding[name]!r}.")
        return {"model_type": OWN, **encoding}
    if isinstance(encoding, str):
        fields = declared_fields(ENCODINGS.config(encoding)())
        return {name: value for name, value in fields.items() if name not in _SIZES.values()}
    config = encoding
    if not isinstance(config, EncodingConfig):
        raise ConfigError(f"OwnModel.encoding must be a name, a configuration or fields; got {encoding!r}.")
    for kind, fields in _FIELDS.items():
        if isinstance(config, kind):
            return {"model_type": OWN, **fields(config)}
    raise UnsupportedError(
        f"an audit knows no declaration of encoding {config.kind!r}; declare nope, learned, alibi or rope, "
        "fields of a config.json, or nothing."
    )


def observed_sizes(encoding: str | EncodingConfig | Mapping[str, Any] | None) -> tuple[str, ...]:
    """Fields that must hold sizes of the model's heads for what an encoding declares.

    Of fields themselves, those that they leave open; those that they state are taken as they are.
    """
    if isinstance(encoding, Mapping):
        stated = {name for name, value in encoding.items() if value is not None}
        return tuple(size for size, names in _STATED.items() if encoding and not names & stated)
    config = ENCODINGS.config(encoding) if isinstance(encoding, str) else type(encoding)
    return tuple(size for kind, size in _SIZES.items() if issubclass(config, kind))


def _rope(config: RoPE.Config) -> Fields:
    return {
        "head_dim": config.head_dim,
        "rope_interleave": config.pairs == "adjacent",
        "rope_parameters": _schedule(config.schedule),
    }


def _schedule(schedule: Schedule) -> Fields:
    """Parameters of a frequency schedule, as configurations write them."""
    if type(schedule) is Geometric:
        return {"rope_type": "default", "rope_theta": schedule.base}
    if isinstance(schedule, Linear):
        return {"rope_type": "linear", "rope_theta": schedule.base, "factor": schedule.factor}
    if isinstance(schedule, Llama3):
        return {
            "rope_type": "llama3",
            "rope_theta": schedule.base,
            "factor": schedule.factor,
            "low_freq_factor": schedule.low_freq_factor,
            "high_freq_factor": schedule.high_freq_factor,
            "original_max_position_embeddings": schedule.trained_length,
        }
    if isinstance(schedule, YaRN):
        return {
            "rope_type": "yarn",
            "rope_theta": schedule.base,
            "factor": schedule.factor,
            "original_max_position_embeddings": schedule.trained_length,
            "beta_fast": schedule.beta_fast,
            "beta_slow": schedule.beta_slow,
            "attention_factor": schedule.attention_factor,
            "truncate": schedule.truncate,
        }
    raise UnsupportedError(
        f"an audit knows no declaration of frequency schedule {schedule.kind!r}; declare geometric, linear, "
        "llama3 or yarn, fields of a config.json, or nothing."
    )


_FIELDS: dict[type[EncodingConfig], Callable[[Any], Fields]] = {
    NoPE.Config: lambda config: {"alibi": False},
    Learned.Config: lambda config: {"model_type": LEARNED},
    ALiBi.Config: lambda config: {"alibi": True, "num_attention_heads": config.n_heads},
    RoPE.Config: _rope,
}
_SIZES: dict[type[EncodingConfig], str] = {ALiBi.Config: "num_attention_heads", RoPE.Config: "head_dim"}
_STATED = {  # Fields from which each of the sizes follows.
    "head_dim": {*HEAD_WIDTHS, *WIDTHS},
    "num_attention_heads": {*HEADS},
}
