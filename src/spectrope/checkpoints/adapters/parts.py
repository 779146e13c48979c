"""Parts of a model that are models of their own: a decoder, an encoder of sounds, a vision tower."""

import contextlib
from collections.abc import Iterator
from typing import Any

from torch import nn

from spectrope.checkpoints.adapters.sounds import is_sound_encoder
from spectrope.checkpoints.adapters.structure import opened_from, whole_config
from spectrope.checkpoints.adapters.towers import is_tower
from spectrope.core import ConfigError

REMEMBERED = ("whole_config", "part_name", "opened_from")  # By a part of the whole.


def part_of(model: nn.Module, name: str) -> nn.Module:
    """A part of a model that was loaded for it, which remembers its name and the whole's configuration.

    Args:
        model: A Hugging Face model.
        name: Dotted name of the part, such as "model.encoder", also within the model without its head.

    Raises:
        ConfigError: If no part of that name is a model of its own.
    """
    part: Any = _part_named(model, name)
    if part.config.model_type != whole_config(model).model_type:
        part.whole_config = whole_config(model)
    part.part_name = name
    part.opened_from = opened_from(model)
    return part


@contextlib.contextmanager
def as_part(model: nn.Module, name: str) -> Iterator[nn.Module]:
    """Context manager that gives a part of a model, which remembers the whole as long as that lasts.

    Raises:
        ConfigError: If no part of that name is a model of its own.
    """
    held = vars(_part_named(model, name))
    before = {key: held[key] for key in REMEMBERED if key in held}
    try:
        yield part_of(model, name)
    finally:
        for key in REMEMBERED:
            held.pop(key, None)
        held.update(before)


def _part_named(model: nn.Module, name: str) -> nn.Module:
    """The part of that name, also within the model without its head, if it is a model of its own."""
    body = getattr(model, "base_model", model)
    part = (dict(body.named_modules()) | dict(model.named_modules())).get(name)
    if not name or part is None or not _is_model(part):
        known = ", ".join(models_within(model)) or "none"
        raise ConfigError(
            f"part must name a model within {type(model).__name__}; got {name!r}. Models within it: {known}."
        )
    return part


def models_within(model: nn.Module) -> list[str]:
    """Dotted names of the parts of a model that take sounds or pictures, or text without any of these."""
    found: list[str] = []
    body = getattr(model, "base_model", model)
    for name, module in model.named_modules():
        inside = any(name.startswith(f"{one}.") for one in found)
        other = module not in (model, body) and not inside and _is_model(module)
        if other and (_takes_no_text(module) or _takes_text_alone(module)):
            found.append(name)
    return found


def shown_name(model: nn.Module) -> str:
    """The folder or id of a model's checkpoint, else its class; and which part of it it is."""
    path = getattr(whole_config(model), "_name_or_path", "") or getattr(model, "name", type(model).__name__)
    return named_part(str(path), getattr(model, "part_name", ""))


def named_part(model: str, part: str) -> str:
    """A model, and which part of it is meant, if any."""
    return f"{model}, {part}" if part else model


def _is_model(module: nn.Module) -> bool:
    return hasattr(module, "config") and hasattr(module, "get_input_embeddings")


def _takes_no_text(module: nn.Module) -> bool:
    return is_sound_encoder(module) or is_tower(module)


def _takes_text_alone(module: nn.Module) -> bool:
    """Whether a model takes tokens and has no part that takes something else."""
    others = any(_takes_no_text(part) for part in module.modules() if _is_model(part))
    return getattr(module, "main_input_name", "") == "input_ids" and not others
