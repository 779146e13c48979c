"""The paper's text, its public code, and neither's confounds: functions from an experiment to an experiment.

The text and the code differ in eleven switches that concern training (R9, R10 and R12 are protocols of
ablation). Each is a function here, so that one can be thrown alone. R11 and R14 concern latent attention.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import reduce

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


def _with_model(experiment: Experiment, **changes: object) -> Experiment:
    return replace(experiment, model=replace(experiment.model, **changes))  # pyright: ignore[reportArgumentType]


def bidirectional(experiment: Experiment) -> Experiment:
    """R1: no causal mask."""
    return _with_model(experiment, causal=False)


def keys_from_embeddings(experiment: Experiment) -> Experiment:
    """R2: keys and values of every layer come from the un-normalised input embeddings."""
    return _with_model(experiment, memory="embeddings")


def _swap(kind: type[EncodingConfig], change: Callable[[EncodingConfig], EncodingConfig]) -> Condition:
    def switch(experiment: Experiment) -> Experiment:
        encoding = experiment.model.encoding
        return (
            _with_model(experiment, encoding=change(encoding)) if isinstance(encoding, kind) else experiment
        )

    return switch


def _add_sinusoid(rotary: EncodingConfig) -> EncodingConfig:
    return Sum.Config(parts=(rotary, Sinusoidal.Config(layout="halves")))


def rotary_plus_absolute(experiment: Experiment) -> Experiment:
    """R3: RoPE comes with an absolute input term; in latent attention that is R11's affair."""
    return experiment if _is_latent(experiment) else _swap(RoPE.Config, _add_sinusoid)(experiment)


def _is_latent(experiment: Experiment) -> bool:
    return isinstance(experiment.model.attention, Latent.Config)


table_for_buckets = _swap(T5.Config, lambda _: RelativeTable.Config())  # R4
exponential_slopes = _swap(ALiBi.Config, lambda _: ALiBi.Config(slopes="exponential"))  # R5
trainable_positions = _swap(RandomVectors.Config, lambda _: RandomVectors.Config(trainable=True))  # R6


def visible_padding(experiment: Experiment) -> Experiment:
    """R7: padding is seen and pooled; under latent attention it is not, but a norm follows the last layer."""
    change = {"final_norm": True} if _is_latent(experiment) else {"padding": "visible"}
    return _with_model(experiment, **change)


def any_fillers(experiment: Experiment) -> Experiment:
    """R8: Task 1 draws its filler words from all words, triggers included, so that labels are ambiguous."""
    task = experiment.task
    if task.kind != "distance":
        return experiment
    return replace(experiment, task=replace(task, fillers="any"))  # pyright: ignore[reportCallIssue]


def vocabulary_classes(experiment: Experiment) -> Experiment:
    """R13: as many classes as words, and label 0 counts neither in loss nor in accuracy."""
    return _with_model(experiment, classes="vocabulary")


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


def gelu_and_two_dropouts(experiment: Experiment) -> Experiment:
    """R14: the feed-forward beside latent attention has GELU for ReLU, and a second dropout on its output."""
    return _with_model(experiment, feed_forward="gelu") if _is_latent(experiment) else experiment


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
    "R14": gelu_and_two_dropouts,
}

THROWN: dict[str, tuple[str, ...]] = {  # By condition; "controlled" is the library's own.
    "controlled": (),
    "described": ("R7", "R8", "R13", "R14"),  # where the paper's text is silent, its code speaks
    "released": tuple(SWITCHES),
}


def _thrown(name: str) -> Condition:
    """The condition that throws the switches of that name."""

    def condition(experiment: Experiment) -> Experiment:
        switches = (SWITCHES[switch] for switch in THROWN[name])
        return reduce(lambda changed, switch: switch(changed), switches, experiment)

    return condition


for name in ("described", "released"):
    CONDITIONS.register(name, _thrown(name))
