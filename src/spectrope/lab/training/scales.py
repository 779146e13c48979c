"""How large an experiment is: from minutes on two cores to the paper's own settings."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from spectrope.attention.heads import ATTENTIONS, AttentionConfig
from spectrope.attention.multi_head import MultiHead
from spectrope.core.config import from_dict
from spectrope.core.errors import UnknownNameError
from spectrope.encodings.base import ENCODINGS, EncodingConfig
from spectrope.encodings.rotary import Rotary
from spectrope.lab.training.conditions import apply_condition
from spectrope.lab.training.config import Experiment, TrainingConfig
from spectrope.models.decoder import DecoderConfig
from spectrope.tasks.base import TASKS, TaskConfig


@dataclass(frozen=True, kw_only=True)
class Preset:
    """One task at one scale."""

    task: TaskConfig
    model: DecoderConfig
    training: TrainingConfig
    n_examples: int


def _task(name: str, **sizes: object) -> TaskConfig:
    return from_dict(TASKS.config(name), sizes)


_MINI = DecoderConfig(d_model=64, n_layers=3, n_heads=8, head_dim=16, d_ff=128)
_SMALL = DecoderConfig(d_model=128, n_layers=4, n_heads=8, head_dim=16, d_ff=256)
_QUICK = TrainingConfig(epochs=4, batch_size=128, learning_rate=3e-3, betas=(0.9, 0.98))

SCALES: Mapping[str, Mapping[str, Preset]] = {
    "mini": {
        "distance": Preset(
            task=_task("distance", vocabulary=128, max_side=6, max_gap=18, max_length=32),
            model=_MINI,
            training=_QUICK,
            n_examples=20_000,
        ),
        "counting": Preset(
            task=_task("counting", vocabulary=128, length=32, n_triggers=10, max_count=26),
            model=_MINI,
            training=_QUICK,
            n_examples=12_000,
        ),
        "addition": Preset(
            task=_task("addition", n_digits=4),
            model=replace(_MINI, pooling="last"),
            training=replace(_QUICK, epochs=8),
            n_examples=20_000,
        ),
    },
    "small": {
        "distance": Preset(
            task=_task("distance", vocabulary=256, max_side=12, max_gap=36, max_length=64),
            model=_SMALL,
            training=replace(_QUICK, epochs=20, batch_size=256, learning_rate=1e-3),
            n_examples=50_000,
        ),
        "counting": Preset(
            task=_task("counting", vocabulary=256, length=64, n_triggers=15, max_count=52),
            model=_SMALL,
            training=replace(_QUICK, epochs=20, batch_size=256, learning_rate=1e-3),
            n_examples=30_000,
        ),
        "addition": Preset(
            task=_task("addition", n_digits=10),
            model=replace(_SMALL, pooling="last"),
            training=replace(_QUICK, epochs=20, batch_size=256, learning_rate=1e-3),
            n_examples=50_000,
        ),
    },
    "paper": {
        "distance": Preset(
            task=_task("distance"),
            model=DecoderConfig(),
            training=TrainingConfig(),
            n_examples=100_000,
        ),
        "counting": Preset(
            task=_task("counting"),
            model=DecoderConfig(),
            training=TrainingConfig(epochs=150),
            n_examples=50_000,
        ),
        "addition": Preset(
            task=_task("addition", n_digits=20),
            model=DecoderConfig(pooling="last"),
            training=TrainingConfig(),
            n_examples=100_000,
        ),
    },
}

TRAIN_SHARE = 0.7


def experiment(
    task: str,
    encoding: str | EncodingConfig,
    *,
    scale: str = "mini",
    condition: str = "controlled",
    seed: int = 0,
    epochs: int | None = None,
    n_examples: int | None = None,
    attention: AttentionConfig | None = None,
) -> Experiment:
    """The experiment that compares an encoding on a task at a scale, under a condition.

    Args:
        task: A registered task.
        encoding: A registered encoding, with its defaults, or its configuration; "mla" is latent attention
            with RoPE, as wide as the scale asks, and "mla+alibi" the same with another encoding.
        scale: A key of `SCALES`.
        condition: "described", "released" or "controlled".
        seed: Of data, weights, order and dropout.
        epochs: Replaces the scale's.
        n_examples: Replaces the scale's, 70 % of it for training.
        attention: What makes queries, keys and values; None takes what the name says.

    Raises:
        UnknownNameError: If a name is not known.
        ConfigError: If sizes break a rule.
    """
    preset = _preset(task, scale)
    config, named = _named(encoding, preset.model.d_model)
    attention = attention or named
    built = preset.task.build()
    sizes = {"vocabulary": built.vocabulary, "n_labels": built.n_classes, "max_length": built.max_length}
    n = preset.n_examples if n_examples is None else n_examples
    n_train = round(TRAIN_SHARE * n)
    training = preset.training if epochs is None else replace(preset.training, epochs=epochs)
    return apply_condition(
        Experiment(
            encoding_name=_full_name(config, attention),
            task=preset.task,
            model=replace(preset.model, encoding=config.fitted(seed=seed), attention=attention, **sizes),
            training=training,
            n_train=n_train,
            n_test=n - n_train,
            scale=scale,
            condition=condition,
            seed=seed,
        )
    )


def _named(encoding: str | EncodingConfig, d_model: int) -> tuple[EncodingConfig, AttentionConfig]:
    """An encoding and the attention that its name asks for."""
    if not isinstance(encoding, str):
        return encoding, MultiHead.Config()
    first, _, rest = encoding.partition("+")
    if first in ATTENTIONS:
        return ENCODINGS.config(rest or Rotary.Config.kind)(), ATTENTIONS.config(first).for_width(d_model)
    if encoding not in ENCODINGS:
        raise UnknownNameError("encoding", encoding, [*ENCODINGS, *ATTENTIONS])
    return ENCODINGS.config(encoding)(), MultiHead.Config()


def _full_name(encoding: EncodingConfig, attention: AttentionConfig) -> str:
    """What an experiment is called: its encoding, behind the name of an unusual attention."""
    if isinstance(attention, MultiHead.Config):
        return encoding.kind
    return attention.kind if isinstance(encoding, Rotary.Config) else f"{attention.kind}+{encoding.kind}"


def _preset(task: str, scale: str) -> Preset:
    if scale not in SCALES:
        raise UnknownNameError("scale", scale, SCALES)
    if task not in SCALES[scale]:
        raise UnknownNameError("task", task, SCALES[scale])
    return SCALES[scale][task]
