"""Parts of a model that are models of their own: a decoder, an encoder of sounds, a vision tower."""

from typing import Any

from torch import nn

from spectrope.checkpoints.adapters.sounds import is_sound_encoder
from spectrope.checkpoints.adapters.towers import is_tower
from spectrope.core import ConfigError


def part_of(model: nn.Module, name: str) -> nn.Module:
    """A part of a model, which remembers its name and the configuration of the whole.

    Args:
        model: A Hugging Face model.
        name: Dotted name of the part, such as "model.encoder", also within the model without its head.

    Raises:
        ConfigError: If no part of that name is a model of its own.
    """
    body = getattr(model, "base_model", model)
    part: Any = (dict(body.named_modules()) | dict(model.named_modules())).get(name)
    if not name or not _is_model(part):
        known = ", ".join(models_within(model)) or "none"
        raise ConfigError(
            f"part must name a model within {type(model).__name__}; got {name!r}. It has these: {known}."
        )
    if part.config is not model.config:
        part.whole_config = model.config
    part.part_name = name
    return part


def models_within(model: nn.Module) -> list[str]:
    """Dotted names of the parts of a model that can be audited by themselves."""
    found: list[str] = []
    for name, module in model.named_modules():
        other = name and _is_model(module) and not any(name.startswith(f"{one}.") for one in found)
        if other and (_takes_no_text(module) or _takes_text_alone(module)):
            found.append(name)
    return found


def shown_name(model: nn.Module) -> str:
    """The folder or id of a model's checkpoint, else its class; and which part of it it is."""
    config: Any = getattr(model, "whole_config", model.config)
    path = getattr(config, "_name_or_path", "") or getattr(model, "name", type(model).__name__)
    return ", ".join([str(path), *filter(None, [getattr(model, "part_name", "")])])


def _is_model(module: nn.Module | None) -> bool:
    return hasattr(module, "config") and hasattr(module, "get_input_embeddings")


def _takes_no_text(module: nn.Module) -> bool:
    return is_sound_encoder(module) or is_tower(module)


def _takes_text_alone(module: nn.Module) -> bool:
    """Whether a model takes tokens and has no part that takes something else."""
    others = any(_takes_no_text(part) for part in module.modules() if _is_model(part))
    return getattr(module, "main_input_name", "") == "input_ids" and not others
