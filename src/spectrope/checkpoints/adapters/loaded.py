"""Checks of the weights that were loaded from a checkpoint."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from spectrope.core import ConfigError


def check_weights_of(
    model: nn.Module,
    source: str | Path,
    loaded: dict[str, Any],
    checked: Callable[[Tensor], None] = lambda _: None,
) -> None:
    """Refuse weights of other sizes than the configuration's, random ones, and such as are not finite.

    `checked` is called with every weight once it has been read.
    """
    if wrong := sorted(loaded["mismatched_keys"]):
        name, shape, wanted = wrong[0]
        raise ConfigError(
            f"{source} cannot be loaded: {name} has shape {_by(shape)}, but its config.json requires "
            f"{_by(wanted)}."
        )
    _check_drawn(model, source, loaded["missing_keys"])
    remembering: Any = model
    remembering.ignored_weights = tuple(sorted(loaded["unexpected_keys"]))
    for name, weight in model.named_parameters():
        if not _is_finite(weight.detach()):
            raise ConfigError(f"{source} holds values in {name} that are not finite; give a sound one.")
        checked(weight)


def _by(shape: Iterable[int]) -> str:
    return " x ".join(map(str, shape))


def _is_finite(weight: Tensor) -> bool:
    """Without another tensor of its size; formats of one byte have no such values that could be asked for."""
    if not weight.is_floating_point() or weight.element_size() == 1 or not weight.numel():
        return True
    return all(bool(end.isfinite()) for end in weight.aminmax())


def _check_drawn(model: Any, source: str | Path, missing: Iterable[str]) -> None:
    """Refuse weights drawn at random, but for heads and poolers, which not all commands use: remember those.

    Raises:
        ConfigError: If another is missing.
    """
    apart = _parts_apart(model)
    inside = sorted(name for name in missing if not name.startswith(apart) and ".pooler." not in f".{name}")
    if inside:
        raise ConfigError(
            f"{source} lacks {len(inside)} weights ({inside[0]}), which would be random; save it whole."
        )
    model.drawn_weights = tuple(sorted(missing))


def _parts_apart(model: Any) -> tuple[str, ...]:
    """How names of weights outside the body of a model begin: those of its heads."""
    if model.base_model is not model:
        heads = (name for name, _ in model.named_children() if name != model.base_model_prefix)
        return (*(f"{name}." for name in heads), "final_logits_bias")
    head = getattr(model, "get_output_embeddings", lambda: None)()
    return tuple(f"{name}." for name, module in model.named_modules() if module is head)
