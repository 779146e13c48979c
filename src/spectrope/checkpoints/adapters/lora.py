"""Merge an adapter into its base, by the library that made it."""

import json
import warnings
from pathlib import Path
from typing import Any

from torch import nn

from spectrope.checkpoints.adapters.hub import without_hub
from spectrope.core import ConfigError, UnsupportedError

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"


def is_adapter(source: str) -> bool:
    """Whether a folder holds an adapter."""
    return (Path(source) / CONFIG).is_file()


def base_of(source: str) -> str:
    """The base model named by an adapter; "" if it names none."""
    return str(_fields(Path(source)).get("base_model_name_or_path") or "")


def merged(base: nn.Module, source: str) -> nn.Module:
    """A base with an adapter merged into its weights, which change.

    Args:
        base: Loaded for this alone.
        source: Folder of the adapter.

    Raises:
        UnsupportedError: If peft is missing, weights are pickled, or the adapter cannot be merged.
        ConfigError: If the adapter does not fit the base.
    """
    folder = Path(source)
    if not (folder / WEIGHTS).is_file():
        raise UnsupportedError(f"{folder} holds no {WEIGHTS}; save the adapter as safetensors.")
    if str(_fields(folder).get("peft_type")).upper() == "XLORA":
        raise UnsupportedError(f"{folder} holds X-LoRA, which names other adapters and cannot be merged.")
    if _fields(folder).get("megatron_config"):
        raise UnsupportedError(f"{folder} asks for Megatron, whose modules are not imported at its word.")
    try:
        from peft import PeftModel
    except ImportError:
        raise UnsupportedError(
            "an adapter needs peft, which is not installed; pip install 'spectrope[peft]'."
        ) from None
    whole: Any = base
    try:
        with warnings.catch_warnings(), without_hub():
            warnings.simplefilter("ignore")  # of the library's own use of transformers
            adapted: Any = PeftModel.from_pretrained(whole, str(folder))
    except Exception as error:  # what does not fit raises errors of any kind inside the library
        first, *_ = str(error).strip().splitlines() or [""]
        raise ConfigError(f"{folder} does not fit its base: {type(error).__name__}: {first}") from error
    if not hasattr(adapted.base_model, "merge_and_unload"):
        kind = _fields(folder).get("peft_type")
        raise UnsupportedError(f"{folder} holds an adapter of kind {kind}, which cannot be merged.")
    return adapted.merge_and_unload().eval()


def _fields(folder: Path) -> dict[str, Any]:
    try:
        fields = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        raise ConfigError(f"{folder / CONFIG} is not a valid JSON object; save the adapter anew.") from None
    return fields if isinstance(fields, dict) else {}
