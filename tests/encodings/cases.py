"""What the contract battery runs on: every registered encoding by default, and variants of some."""

import contextlib
import dataclasses
import typing
from collections.abc import Iterator
from typing import Any, Literal

import pytest
import torch
from torch import Tensor

from spectrope.core.errors import ConfigError, UnsupportedError
from spectrope.core.random import initial_weights
from spectrope.encodings.alibi import ALiBi
from spectrope.encodings.axial import AxialRoPE, MixedRoPE, MRoPE
from spectrope.encodings.base import ENCODINGS, EncodingConfig
from spectrope.encodings.blend import Blend
from spectrope.encodings.decay import FoX
from spectrope.encodings.differential import Differential
from spectrope.encodings.drope import DRoPE
from spectrope.encodings.fope import FoPE
from spectrope.encodings.harope import HARoPE
from spectrope.encodings.laws import LawTrial, Sizes
from spectrope.encodings.learned import Learned
from spectrope.encodings.linear_attention import LinearAttention
from spectrope.encodings.nope import NoPE
from spectrope.encodings.partial_dims import PartialDims
from spectrope.encodings.per_head import Group, PerHead
from spectrope.encodings.per_layer import PerLayer
from spectrope.encodings.random import RandomVectors
from spectrope.encodings.relative import RelativeTable
from spectrope.encodings.rope import RoPE
from spectrope.encodings.schedules.base import SCHEDULES
from spectrope.encodings.schedules.geometric import Geometric
from spectrope.encodings.schedules.learned import LearnedFrequencies
from spectrope.encodings.schedules.longrope import LongRoPE
from spectrope.encodings.schedules.yarn import YaRN
from spectrope.encodings.shaw import Shaw
from spectrope.encodings.sinusoidal import Sinusoidal
from spectrope.encodings.sum import Sum
from spectrope.encodings.t5 import T5
from spectrope.encodings.temperature import Temperature
from spectrope.encodings.tupe import TUPE
from spectrope.encodings.xpos import XPos

SIZES = Sizes()
SIZE_FIELDS = frozenset(field.name for field in dataclasses.fields(Sizes)) - {"causal"}

VARIANTS: list[EncodingConfig] = [
    ALiBi.Config(slopes="exponential"),
    ALiBi.Config(learned=True),
    ALiBi.Config(symmetric=False),
    RandomVectors.Config(trainable=True),
    Blend.Config(learned=True, pairs="halves"),
    AxialRoPE.Config(n_axes=3, pairs="halves"),
    MixedRoPE.Config(learned=False),
    MRoPE.Config(layout="interleaved"),
    DRoPE.Config(pairs="halves"),
    Temperature.Config(growth="smooth"),
    Sum.Config(parts=(RoPE.Config(), Temperature.Config())),
    Differential.Config(inner=ALiBi.Config()),
    LinearAttention.Config(decay=FoX.Config()),
    FoPE.Config(learned=True),
    PartialDims.Config(inner=RoPE.Config(pairs="halves")),
    PerHead.Config(groups=(Group(heads=2), Group(heads=1, encoding=ALiBi.Config()))),
    PerHead.Config(groups=(Group(), Group(encoding=Sum.Config(parts=(PartialDims.Config(), T5.Config()))))),
    PerHead.Config(groups=(Group(heads=2, encoding=AxialRoPE.Config()), Group(encoding=ALiBi.Config()))),
    PerLayer.Config(layers=(ALiBi.Config(), RoPE.Config())),
    RoPE.Config(pairs="halves"),
    XPos.Config(schedule=LearnedFrequencies()),
    *(RoPE.Config(schedule=SCHEDULES[name]()) for name in SCHEDULES if name != "geometric"),
    RoPE.Config(schedule=Geometric(base=500.0)),
    RoPE.Config(schedule=YaRN(trained_length=400, attention_factor=1.0, truncate=False)),
    Shaw.Config(values=False),
    Sinusoidal.Config(layout="halves"),
    Sum.Config(parts=(NoPE.Config(),)),
    Sum.Config(parts=(RoPE.Config(schedule=LongRoPE()), ALiBi.Config())),
    Sum.Config(parts=(PerHead.Config(groups=(Group(encoding=RelativeTable.Config()),)), Learned.Config())),
    Sum.Config(parts=(RoPE.Config(), Learned.Config(), T5.Config())),
    Sum.Config(parts=(RoPE.Config(), RoPE.Config(pairs="halves"))),
    Sum.Config(parts=(RoPE.Config(), HARoPE.Config())),
    Sum.Config(parts=(RoPE.Config(), Sum.Config(parts=(RoPE.Config(), NoPE.Config())))),
    Sum.Config(parts=(Shaw.Config(), RoPE.Config())),
    PerHead.Config(groups=(Group(heads=2, encoding=Shaw.Config()), Group(encoding=TUPE.Config()))),
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
    if isinstance(value, Group):
        return f"{value.heads}x{label(value.encoding)}"
    return label(value) if dataclasses.is_dataclass(value) else str(value)


CONFIGS = [ENCODINGS.config(name)() for name in ENCODINGS] + VARIANTS
CASES = [pytest.param(fitted(config), id=label(config)) for config in CONFIGS]


def built(config: EncodingConfig, seed: int = 0) -> Any:
    with initial_weights(seed):
        return config.build()


def trial(config: EncodingConfig, seed: int = 0, length: int = 12) -> LawTrial:
    names = SIZE_FIELDS & {field.name for field in dataclasses.fields(config)}
    sizes = dataclasses.replace(SIZES, **{name: getattr(config, name) for name in names})
    return LawTrial(built(config), sizes, seed, length)


def perturbed(config: Any, skip: frozenset[str] = frozenset()) -> Iterator[list[Any]]:
    """For every field, at any depth: copies of a configuration in which that field alone has changed."""
    hints = typing.get_type_hints(type(config))
    for field in dataclasses.fields(config):
        if field.name not in skip:
            for changes in _changes(getattr(config, field.name), hints[field.name]):
                copies = [_with(config, field.name, value) for value in changes]
                assert any(copies), f"no valid change of {type(config).__qualname__}.{field.name}"
                yield [copy for copy in copies if copy is not None]


def _with(config: Any, name: str, value: Any) -> Any:
    try:
        return dataclasses.replace(config, **{name: value})
    except ConfigError:
        return None


def _changes(value: Any, hint: Any = None) -> Iterator[list[Any]]:
    """Lists of other values, one list for each field of what `value` is or holds."""
    if typing.get_origin(hint) is Literal:
        yield [choice for choice in typing.get_args(hint) if choice != value]
    elif value is None:
        yield [1.25]
    elif isinstance(value, bool):
        yield [not value]
    elif isinstance(value, int):
        yield sorted({value * 2, value * 10, value + 1} - {value})
    elif isinstance(value, float):
        yield [value * 10 or 1.0, value * 2 or 1.0, value / 2]
    elif isinstance(value, tuple):
        for i, item in enumerate(value):
            for changes in _changes(item):
                yield [(*value[:i], change, *value[i + 1 :]) for change in changes]
    elif isinstance(value, EncodingConfig) and not dataclasses.fields(value):
        yield [fitted(RelativeTable.Config())]
    else:
        yield from perturbed(value, SIZE_FIELDS)  # a model's sizes change for all parts together


def fingerprint(config: EncodingConfig) -> dict[str, Tensor]:
    """Everything by which two encodings may differ: state, what is trained, logits near and far."""
    layers = config.build_layers(4)
    everything = torch.nn.ModuleList(layers)
    state = {f"buffer {name}": value for name, value in everything.named_buffers()}
    state |= {f"parameter {name} {p.requires_grad}": p.detach() for name, p in everything.named_parameters()}
    if not any(getattr(config, name, size) != size for name, size in dataclasses.asdict(SIZES).items()):
        for layer, encoding in enumerate(dict.fromkeys(layers)):
            t = LawTrial(encoding, SIZES, length=24)
            x = t.contents()
            for pos, reached in spread(t):
                name = f"layer {layer}, logits to {int(pos.max())}"
                with reached:
                    ctx = t.context(x, pos)
                    state[name] = t.encoding.logits(ctx).detach()
                if name in state:
                    state[f"{name}, read"] = t.encoding.read(state[name].softmax(-1), ctx.k, ctx).detach()
    return state


def spread(t: LawTrial) -> Iterator[tuple[Tensor, contextlib.AbstractContextManager[None]]]:
    """Neighbouring positions, and more distant ones, which an encoding may refuse in the context."""
    yield t.pos, contextlib.nullcontext()
    for stride in (17, 997):
        yield t.pos * stride, contextlib.suppress(UnsupportedError)


def spreads(t: LawTrial) -> list[Tensor]:
    """Those of the positions of `spread` that the encoding reaches."""
    near, *far = spread(t)
    found = [near[0]]
    for pos, reached in far:
        with reached:
            t.logits(t.contents(), pos)
            found.append(pos)
    return found


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    if a.keys() != b.keys():
        return False
    return all(a[name].shape == b[name].shape and torch.allclose(a[name], b[name], rtol=1e-9) for name in a)
