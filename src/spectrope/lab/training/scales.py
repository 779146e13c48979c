"""Scales of experiments, from minutes on two cores to the paper's settings."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from spectrope.attention import ATTENTIONS, AttentionConfig, Latent, MultiHead
from spectrope.core import ConfigError, UnknownNameError, checked, is_foreign, require_type
from spectrope.encodings import (
    ENCODINGS,
    NAMED,
    Encoding,
    EncodingConfig,
    Positions,
    RoPE,
    combination,
    parse_encoding,
    parse_positions,
    split_sizes,
)
from spectrope.lab.training.conditions import apply_condition
from spectrope.lab.training.config import Experiment, TrainingConfig
from spectrope.models import DecoderConfig
from spectrope.tasks import TASKS, Size, Task, TaskConfig

AnyEncoding = str | type[Encoding] | EncodingConfig | Encoding
AnyTask = str | type[Task] | TaskConfig | Task


@dataclass(frozen=True, kw_only=True)
class Preset:
    """One task at one scale."""

    task: TaskConfig
    model: DecoderConfig
    training: TrainingConfig
    n_examples: int
    latent_batch: int | None = None  # Batch size of latent attention, where it has one of its own.


@dataclass(frozen=True, kw_only=True)
class Scale(Mapping[str, Preset]):
    """The presets of all registered tasks at one scale, by the tasks' names.

    Args:
        name: Its key in the `sizes` of tasks.
        model: Architecture, except for sizes that follow from the task.
        training: Training configuration, unless a task replaces it.
        n_examples: Number of examples, unless a task replaces it.
        latent_batch: Batch size of latent attention, where it has one of its own.
    """

    name: str
    model: DecoderConfig
    training: TrainingConfig
    n_examples: int
    latent_batch: int | None = None

    def __getitem__(self, task: str) -> Preset:
        size = TASKS[task].sizes.get(self.name, Size())
        model, training = self.model, self.training
        return Preset(
            task=size.config or TASKS.config(task)(),
            model=model if size.pooling is None else replace(model, pooling=size.pooling),
            training=replace(
                training,
                epochs=size.epochs or training.epochs,
                learning_rate=size.learning_rate or training.learning_rate,
            ),
            n_examples=self.n_examples if size.n_examples is None else size.n_examples,
            latent_batch=self.latent_batch,
        )

    def __iter__(self) -> Iterator[str]:
        return iter(TASKS)

    def __len__(self) -> int:
        return len(TASKS)


BETAS = (0.9, 0.98)  # The usual choice for Transformers; R15 has the paper's.
_QUICK = TrainingConfig(epochs=4, batch_size=128, learning_rate=3e-3, betas=BETAS)

SCALES: Mapping[str, Mapping[str, Preset]] = {
    "mini": Scale(
        name="mini",
        model=DecoderConfig(d_model=64, n_layers=3, n_heads=8, head_dim=16, d_ff=128),
        training=_QUICK,
        n_examples=20_000,
    ),
    "small": Scale(
        name="small",
        model=DecoderConfig(d_model=128, n_layers=4, n_heads=8, head_dim=16, d_ff=256),
        training=replace(_QUICK, epochs=20, batch_size=256, learning_rate=1e-3),
        n_examples=50_000,
    ),
    "mid": Scale(  # The paper's depth, heads, betas and schedule, as small as two cores can repeat.
        name="mid",
        model=DecoderConfig(d_model=128, n_layers=6, n_heads=16, head_dim=16, d_ff=256),
        training=TrainingConfig(epochs=4, batch_size=128, learning_rate=1e-2),
        n_examples=20_000,
    ),
    "paper": Scale(
        name="paper",
        model=DecoderConfig(),
        training=TrainingConfig(betas=BETAS),
        n_examples=100_000,
        latent_batch=1024,
    ),
}

TRAIN_SHARE = 0.7


def experiment(
    task: AnyTask,
    encoding: AnyEncoding,
    *,
    scale: str = "mini",
    condition: str = "controlled",
    seed: int = 0,
    epochs: int | None = None,
    n_examples: int | None = None,
    attention: AttentionConfig | None = None,
) -> Experiment:
    """Create the experiment with an encoding on a task, at a scale and under a condition.

    Args:
        task: A registered task, a class in a file (`file.py:Class`), which is executed, a class, or a
            configuration or task whose fields replace the scale's.
        encoding: A registered encoding, optionally with settings ("rope:yarn,factor=8", see
            `parse_encoding`), a class in a file, a class, a configuration, or an encoding, of which the
            configuration is used. "mla" is latent attention with RoPE, with the widths of the scale, and
            "mla+alibi" is latent attention with another encoding. ``rope@shifted`` also names a position
            rule, and "shape" is such a combination under its own name (`spectrope.encodings.NAMED`).
        scale: A key of `SCALES`.
        condition: "described", "released" or "controlled".
        seed: Seed of data, initial weights, batch order and dropout.
        epochs: Number of epochs (default: the scale's).
        n_examples: Number of examples, 70 % of which are used for training (default: the scale's).
        attention: Configuration of attention (default: the one that the name of the encoding implies).

    Raises:
        UnknownNameError: If a name is unknown.
        ConfigError: If sizes break a rule, the text of an encoding sets one to another value than the model,
            or a file cannot be executed.

    Example:
        >>> import spectrope as sp
        >>> one = sp.experiment("distance", "rope:yarn,factor=8", epochs=1, n_examples=100)
        >>> one.label, one.n_train, one.model.encoding.schedule.factor
        ('distance/rope:yarn,factor=8/seed 0', 70, 8.0)
    """
    require_type(seed, int, "seed", "a whole number")
    for name, number in (("epochs", epochs), ("n_examples", n_examples)):
        if number is not None:
            require_type(number, int, name, "a whole number")
    encoding = _described(encoding)
    preset = _preset(task, scale)
    config, named, positions = _named(encoding, preset.model.d_model)
    if config.kind in ATTENTIONS:
        raise ConfigError(f"encoding {config.kind!r} is named like an attention layer; choose another name.")
    if attention is not None:
        require_type(attention, AttentionConfig, "attention", "a configuration, such as MultiHead.Config()")
    attention = attention or named
    built = preset.task.build()
    sizes = {"vocabulary": built.vocabulary, "n_labels": built.n_classes, "max_length": built.max_length}
    n = preset.n_examples if n_examples is None else n_examples
    n_train = round(TRAIN_SHARE * n)
    if isinstance(encoding, str):
        _require_fitting(encoding, replace(preset.model, attention=attention, **sizes).sizes)
    training = preset.training if epochs is None else replace(preset.training, epochs=epochs)
    if preset.latent_batch is not None and isinstance(attention, Latent.Config):
        training = replace(training, batch_size=preset.latent_batch)
    return apply_condition(
        Experiment(
            encoding_name=_spelled(encoding) or _full_name(config, attention),
            task=preset.task,
            model=replace(
                preset.model,
                encoding=config.fitted(seed=seed),
                attention=attention,
                positions=positions or preset.model.positions,
                **sizes,
            ),
            training=training,
            n_train=n_train,
            n_test=n - n_train,
            scale=scale,
            condition=condition,
            seed=seed,
        )
    )


def _require_fitting(encoding: str, sizes: Mapping[str, Any]) -> None:
    """Refuse sizes in the text of an encoding that the model would replace by its own."""
    for name, value in split_sizes(encoding)[1].items():
        if value != sizes[name]:
            raise ConfigError(
                f"{encoding!r} sets {name} to {value}, but the model sets it to {sizes[name]}; leave it out."
            )


def _described(encoding: AnyEncoding) -> str | EncodingConfig:
    """An encoding by its name or its configuration."""
    if isinstance(encoding, type):
        return ENCODINGS.default(encoding)
    config = encoding.config if isinstance(encoding, Encoding) else encoding
    require_type(config, (str, EncodingConfig), "encoding", "a name, a class or a configuration")
    return config if isinstance(config, str) else checked(config)


def _named(
    encoding: str | EncodingConfig, d_model: int
) -> tuple[EncodingConfig, AttentionConfig, Positions | None]:
    """An encoding, and the attention and the position rule that its name asks for."""
    if not isinstance(encoding, str):
        return encoding, MultiHead.Config(), None
    if is_foreign(encoding):
        return *_encoded(encoding, d_model), None
    one = combination(encoding)
    spec, at, rule = (encoding if one is None else one.spec).partition("@")
    return *_encoded(spec, d_model), parse_positions(rule) if at else None


def _encoded(encoding: str, d_model: int) -> tuple[EncodingConfig, AttentionConfig]:
    """An encoding and the attention that its name asks for."""
    first, _, rest = encoding.partition("+")
    if first in ATTENTIONS:
        return parse_encoding(rest or RoPE.Config.kind), ATTENTIONS.config(first).for_width(d_model)
    if not is_foreign(encoding) and encoding.partition(":")[0] not in ENCODINGS:
        raise UnknownNameError("encoding", encoding, [*ENCODINGS, *ATTENTIONS, *NAMED])
    return parse_encoding(encoding), MultiHead.Config()


def _spelled(encoding: str | EncodingConfig) -> str:
    """What was typed, where it says more than a name."""
    if not isinstance(encoding, str) or is_foreign(encoding):
        return ""
    return encoding if combination(encoding) or ":" in encoding or "@" in encoding else ""


def _full_name(encoding: EncodingConfig, attention: AttentionConfig) -> str:
    """What an experiment is called: its encoding, behind the name of an unusual attention."""
    if isinstance(attention, MultiHead.Config):
        return encoding.kind
    return attention.kind if isinstance(encoding, RoPE.Config) else f"{attention.kind}+{encoding.kind}"


def _preset(task: AnyTask, scale: str) -> Preset:
    require_type(scale, str, "scale", "text")
    if scale not in SCALES:
        raise UnknownNameError("scale", scale, SCALES)
    config = task.config if isinstance(task, Task) else task
    kind = _kind_of(config)
    for name in TASKS[kind].sizes:
        if name not in SCALES:
            raise UnknownNameError("scale", name, SCALES)
    preset = SCALES[scale][kind]
    return replace(preset, task=config) if isinstance(config, TaskConfig) else preset


def _kind_of(task: "str | type[Task] | TaskConfig") -> str:
    if isinstance(task, TaskConfig):
        return task.kind
    if isinstance(task, type):
        return TASKS.name_of(task)
    if isinstance(task, str) and not is_foreign(task) and task not in TASKS and task in ENCODINGS:
        known = ", ".join(sorted(TASKS))
        raise ConfigError(f"task {task!r} is an encoding; the task is named first, and is one of {known}.")
    return TASKS.resolve(task)
