"""Conditions of the paper's text, of its public code, and without confounds, as functions of experiments. The
code differs from the text, or goes beyond it, in switches R1 to R17. Those that concern training are
functions in this module, so that each can be applied alone; R9, R10 and R12 are protocols of ablation
(`study/released/protocols.py`). The conformance page lists, for each switch, the field that it changes and
its test.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import reduce
from typing import TypeVar

from spectrope.attention import Latent
from spectrope.encodings import (
    T5,
    ALiBi,
    EncodingConfig,
    Learned,
    MisreadRoPE,
    RandomVectors,
    RelativeTable,
    RoPE,
    Sinusoidal,
    Sum,
)
from spectrope.lab import CONDITIONS, Condition, Experiment
from spectrope.study.corrections import in_present_edition, is_latent

E = TypeVar("E", bound=EncodingConfig)
PRINTED_BETAS = (0.98, 0.9)  # R15, as in Tables 3 and 4.


def _with_model(experiment: Experiment, **changes: object) -> Experiment:
    return replace(experiment, model=replace(experiment.model, **changes))  # pyright: ignore[reportArgumentType]


def _chosen(latent: Mapping[str, object], others: Mapping[str, object]) -> Condition:
    """Change some fields of a model with latent attention, and some of any other."""
    return lambda one: _with_model(one, **(latent if is_latent(one) else others))


# R1: no causal mask.
bidirectional = _chosen({"causal": False}, {"causal": False})
# R2: keys and values of every layer come from the un-normalised input embeddings; not in latent attention.
keys_from_embeddings = _chosen({}, {"memory": "embeddings"})
# R7: padding is seen and pooled; in latent attention it is not, but a norm follows the last layer.
visible_padding = _chosen({"final_norm": True}, {"padding": "visible"})
# R13: as many classes as words. Label 0 counts neither in loss nor in accuracy; in latent attention it does.
vocabulary_classes = _chosen({"classes": "vocabulary_with_zero"}, {"classes": "vocabulary"})
# R14: GELU for ReLU between the feed-forward layers of latent attention.
gelu = _chosen({"feed_forward": "gelu"}, {})
# R16: where dropout is.
released_dropout = _chosen(
    {"dropout_at": ("hidden", "feed_forward")}, {"dropout_at": ("pattern", "attention", "feed_forward")}
)


def _swap(kind: type[E], change: Callable[[E], EncodingConfig]) -> Condition:
    def switch(experiment: Experiment) -> Experiment:
        encoding = experiment.model.encoding
        return (
            _with_model(experiment, encoding=change(encoding)) if isinstance(encoding, kind) else experiment
        )

    return switch


def _add_sinusoid(rotary: EncodingConfig) -> EncodingConfig:
    return Sum.Config(parts=(rotary, Sinusoidal.Config(layout="halves")))


def _sines_first(whole: EncodingConfig) -> EncodingConfig:
    assert isinstance(whole, Sum.Config)
    halves = (
        replace(part, layout="halves") if isinstance(part, Sinusoidal.Config) else part
        for part in whole.parts
    )
    return replace(whole, parts=tuple(halves))


def rotary_plus_absolute(experiment: Experiment) -> Experiment:
    """R3: RoPE also adds absolute positions to the input, sines first; in latent attention, this is part of
    R11."""
    if is_latent(experiment):
        return experiment
    return _swap(RoPE.Config, _add_sinusoid)(_swap(Sum.Config, _sines_first)(experiment))


table_for_buckets = _swap(T5.Config, lambda _: RelativeTable.Config())  # R4
exponential_slopes = _swap(ALiBi.Config, lambda _: ALiBi.Config(slopes="exponential"))  # R5
trainable_positions = _swap(RandomVectors.Config, lambda _: RandomVectors.Config(trainable=True))  # R6


def any_fillers(experiment: Experiment) -> Experiment:
    """R8: Task 1 draws its filler words from all words, triggers included, so that labels are ambiguous."""
    task = experiment.task
    if task.kind != "distance":
        return experiment
    return replace(experiment, task=replace(task, fillers="any"))  # pyright: ignore[reportCallIssue]


def misread_rotation(experiment: Experiment) -> Experiment:
    """R11: latent attention misreads RoPE's table, shares its rotary query, and adds learned positions."""
    attention, encoding = experiment.model.attention, experiment.model.encoding
    if not (isinstance(attention, Latent.Config) and isinstance(encoding, RoPE.Config)):
        return experiment
    misread = MisreadRoPE.Config(schedule=encoding.schedule, pairs=encoding.pairs)
    return _with_model(
        experiment,
        attention=replace(attention, rotary_queries="shared"),
        encoding=Sum.Config(parts=(misread, Learned.Config())),
    )


def printed_betas(experiment: Experiment) -> Experiment:
    """R15: AdamW's betas as the text and the code have them, the larger one first."""
    return replace(experiment, training=replace(experiment.training, betas=PRINTED_BETAS))


def bare_latents(experiment: Experiment) -> Experiment:
    """R17: latents have no norm, the output projection no bias, and learned positions start at zero."""
    attention, encoding = experiment.model.attention, experiment.model.encoding
    if not isinstance(attention, Latent.Config):
        return experiment
    if isinstance(encoding, Sum.Config):
        encoding = Sum.Config(parts=tuple(map(_from_zero, encoding.parts)))
    return _with_model(
        experiment, attention=replace(attention, latent_norm=False), output_bias=False, encoding=encoding
    )


def _from_zero(part: EncodingConfig) -> EncodingConfig:
    return replace(part, std=0.0) if isinstance(part, Learned.Config) else part


SWITCHES: dict[str, Condition] = {
    "R1": bidirectional,
    "R2": keys_from_embeddings,
    "R3": rotary_plus_absolute,
    "R4": table_for_buckets,
    "R5": exponential_slopes,
    "R6": trainable_positions,
    "R7": visible_padding,
    "R8": any_fillers,
    "R11": misread_rotation,
    "R13": vocabulary_classes,
    "R14": gelu,
    "R15": printed_betas,
    "R16": released_dropout,
    "R17": bare_latents,
}

# Where the text is silent, its code speaks; the text speaks on latent attention, which has no norm after the
# last layer, and which is DeepSeek's: with norms on its latents, and no bias.
TEXT: dict[str, Condition] = {
    "R7": _chosen({}, {"padding": "visible"}),
    **{name: SWITCHES[name] for name in ("R8", "R13", "R14", "R15", "R16")},
    "R17": _chosen({"output_bias": False}, {}),
}

RELEASED = "released"
THROWN: dict[str, Mapping[str, Condition]] = {  # By condition; "controlled" is the library's own.
    "controlled": {},
    "described": TEXT,
    RELEASED: SWITCHES,
}


def alone(switch: str, experiment: Experiment) -> Experiment:
    """The experiment with one switch applied, whose name becomes its condition; unchanged if the switch has
    no effect."""
    changed = SWITCHES[switch](experiment)
    return experiment if changed == experiment else in_present_edition(replace(changed, condition=switch))


def without(switch: str, experiment: Experiment) -> Experiment:
    """The experiment with all switches of `released` applied except one, which its condition then names.

    Args:
        switch: The one that is left as it is under `controlled`.
        experiment: Under `controlled`.
    """
    others = (change for name, change in SWITCHES.items() if name != switch)
    changed = reduce(lambda one, change: change(one), others, experiment)
    return replace(changed, condition=f"{RELEASED} without {switch}")


def _thrown(name: str) -> Condition:
    """The condition that throws the switches of that name."""

    def condition(experiment: Experiment) -> Experiment:
        switches = THROWN[name].values()
        return in_present_edition(reduce(lambda changed, switch: switch(changed), switches, experiment))

    return condition


for name in ("described", RELEASED):
    CONDITIONS.register(name, _thrown(name))
