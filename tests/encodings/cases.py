"""What the contract battery runs on: every registered encoding by default, and variants of some."""

import dataclasses
import typing
from collections.abc import Iterator
from typing import Any, Literal

import pytest
import torch
from torch import Tensor

from spectrope.core.errors import ConfigError
from spectrope.encodings.alibi import ALiBi
from spectrope.encodings.base import ENCODINGS, EncodingConfig
from spectrope.encodings.laws import Sizes, Trial
from spectrope.encodings.learned import Learned
from spectrope.encodings.nope import NoPE
from spectrope.encodings.random import RandomVectors
from spectrope.encodings.relative import RelativeTable
from spectrope.encodings.rotary import Rotary
from spectrope.encodings.schedules.geometric import Geometric
from spectrope.encodings.sinusoidal import Sinusoidal
from spectrope.encodings.sum import Sum
from spectrope.encodings.t5 import T5

SIZES = Sizes()
SIZE_FIELDS = frozenset(field.name for field in dataclasses.fields(Sizes)) - {"causal"}

VARIANTS: list[EncodingConfig] = [
    ALiBi.Config(slopes="exponential"),
    RandomVectors.Config(trainable=True),
    Rotary.Config(pairs="halves"),
    Rotary.Config(schedule=Geometric(base=500.0)),
    Sinusoidal.Config(layout="halves"),
    Sum.Config(parts=(NoPE.Config(),)),
    Sum.Config(parts=(Rotary.Config(), Learned.Config(), T5.Config())),
    Sum.Config(parts=(Sum.Config(parts=(ALiBi.Config(),)), RelativeTable.Config())),
    T5.Config(n_buckets=8, max_distance=20),
]


def fitted(config: EncodingConfig, sizes: Sizes = SIZES) -> EncodingConfig:
    return config.fitted(**dataclasses.asdict(sizes))


def label(config: Any) -> str:
    """A readable test id: the kind and the fields that differ from its defaults."""
    default = type(config)()
    changed = [
        f.name for f in dataclasses.fields(config) if getattr(config, f.name) != getattr(default, f.name)
    ]
    return "-".join([config.kind, *(f"{name}={_short(getattr(config, name))}" for name in changed)])


def _short(value: Any) -> str:
    if isinstance(value, tuple):
        return "+".join(map(_short, value))
    return label(value) if dataclasses.is_dataclass(value) else str(value)


CONFIGS = [ENCODINGS.config(name)() for name in ENCODINGS] + VARIANTS
CASES = [pytest.param(fitted(config), id=label(config)) for config in CONFIGS]


def built(config: EncodingConfig, seed: int = 0) -> Any:
    torch.manual_seed(seed)
    return config.build()


def trial(config: EncodingConfig, seed: int = 0, length: int = 12) -> Trial:
    names = SIZE_FIELDS & {field.name for field in dataclasses.fields(config)}
    sizes = dataclasses.replace(SIZES, **{name: getattr(config, name) for name in names})
    return Trial(built(config), sizes, seed, length)


def perturbed(config: Any, skip: frozenset[str] = frozenset()) -> Iterator[Any]:
    """Copies of a configuration, each with one field changed, at any depth."""
    hints = typing.get_type_hints(type(config))
    for field in dataclasses.fields(config):
        if field.name not in skip:
            changes = _changes(getattr(config, field.name), hints[field.name])
            valid = [copy for value in changes if (copy := _with(config, field.name, value)) is not None]
            assert valid, f"no valid change of {type(config).__qualname__}.{field.name}"
            yield from valid


def _with(config: Any, name: str, value: Any) -> Any:
    try:
        return dataclasses.replace(config, **{name: value})
    except ConfigError:
        return None


def _changes(value: Any, hint: Any = None) -> Iterator[Any]:
    if typing.get_origin(hint) is Literal:
        yield from (choice for choice in typing.get_args(hint) if choice != value)
    elif isinstance(value, bool):
        yield not value
    elif isinstance(value, int | float):
        yield from (
            (value * 2 or 1, value / 2, value * 1.25) if isinstance(value, float) else (value * 2 or 1,)
        )
    elif isinstance(value, tuple):
        for i, item in enumerate(value):
            yield from ((*value[:i], change, *value[i + 1 :]) for change in _changes(item))
    elif isinstance(value, EncodingConfig) and not dataclasses.fields(value):
        yield fitted(Learned.Config())
    else:
        yield from perturbed(value, SIZE_FIELDS)  # a model's sizes change for all parts together


def fingerprint(config: EncodingConfig) -> dict[str, Tensor]:
    """Everything by which two encodings may differ: state, what is trained, and logits at two lengths."""
    encoding = built(config)
    state = {f"buffer {name}": value for name, value in encoding.named_buffers()}
    state |= {f"parameter {name} {p.requires_grad}": p.detach() for name, p in encoding.named_parameters()}
    if not any(getattr(config, name, size) != size for name, size in dataclasses.asdict(SIZES).items()):
        trial_ = trial(config, length=24)
        ctx = trial_.context(trial_.contents(), trial_.pos)
        state["logits"] = trial_.encoding.logits(ctx).detach()
    return state


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    if a.keys() != b.keys():
        return False
    return all(a[name].shape == b[name].shape and torch.allclose(a[name], b[name], rtol=1e-9) for name in a)
