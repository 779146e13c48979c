"""Find the layers and the configuration of a Hugging Face model."""

import json
import re
from pathlib import Path
from typing import Any

from torch import nn

from spectrope.store import require_file


def layer_name(module: str) -> tuple[str, int]:
    """Stack and number of the layer that a dotted module name lies in.

    `encoder.block.1.layer.0.SelfAttention` lies in layer 1 of "encoder"; a stack on its own has no name.
    """
    match = re.search(r"(?:^|\.)(\d+)(?:\.|$)", module)
    stack = re.search(r"(?:^|\.)(encoder|decoder)\.", module[: match.start() + 1] if match else module)
    return (stack.group(1) if stack else "", int(match.group(1)) if match else 0)


def block_of(module: str) -> str:
    """Dotted name of the block that an attention module lies in: up to the first number."""
    match = re.search(r"^(.*?\.)?\d+(?=\.|$)", module)
    return match.group(0) if match else module


def whole_config(model: nn.Module) -> Any:
    """The configuration of the model that this one is a part or some layers of; else its own."""
    return getattr(model, "whole_config", model.config)


def opened_from(model: nn.Module) -> str:
    """The folder or id that `open_model` read a model from; "" of one that was built or loaded elsewhere.

    Whoever loads a model may change its configuration in doing so, and the file then says nothing of it.
    """
    return getattr(model, "opened_from", "")


def declared_config(model: nn.Module) -> dict[str, Any]:
    """The text model's configuration as plain values: as the library holds it, and as its file says it.

    Returns:
        "library" and "file"; the latter is empty for a model that was not opened here, and holds the fields
        that an `OwnModel` was given. With "stacks" of these where an encoder and a decoder have
        configurations of their own.
    """
    if (observed := getattr(model, "observed_declaration", None)) is not None:
        return {"library": observed(), "file": getattr(model, "stated", {})}
    own, whole, source = _stated_by(model), whole_config(model), opened_from(model)
    if own is not whole:
        return fields_of_part(whole, own, source)
    parts: dict[str, Any] = {name: getattr(whole, name, None) for name in ("encoder", "decoder")}
    texts = {name: part.get_text_config() for name, part in parts.items() if _is_config(part)}
    stacks = {name: fields_of_part(whole, text, source) for name, text in texts.items()}
    return declared_fields(own, source) | ({"stacks": stacks} if len(stacks) == len(parts) else {})


def _stated_by(model: nn.Module) -> Any:
    """The configuration that states what a model applies: that of the whole for its text, else its own."""
    own: Any = model.config
    whole = whole_config(model)
    text_alone = own is whole.get_text_config() and not whole.is_encoder_decoder
    return whole if text_alone or own.model_type == whole.model_type else own


def fields_of_part(whole: Any, part: Any, source: str) -> dict[str, Any]:
    """A configuration within another as plain values, likewise.

    Args:
        whole: The configuration of a model.
        part: That of a part of it.
        source: Folder or id that the model was opened from, if any.
    """
    file: Any = _written(source)
    for name in _path(whole, part) or ():
        file = file.get(name, {}) if isinstance(file, dict) else {}
    return {"library": _plain(part.to_dict()), "file": file if isinstance(file, dict) else {}}


def fields_within(model: nn.Module, part: Any) -> dict[str, Any]:
    """The configuration of a part of a model as plain values, likewise; some layers may be left out."""
    holders = (whole for whole in (whole_config(model), model.config) if _path(whole, part) is not None)
    return fields_of_part(next(holders, whole_config(model)), part, opened_from(model))


def _is_config(value: Any) -> bool:
    return hasattr(value, "get_text_config")


def _path(whole: Any, part: Any) -> tuple[str, ...] | None:
    """Names of the fields that lead from one configuration to another; None if none do."""
    if whole is part:
        return ()
    for name, value in vars(whole).items():
        if _is_config(value) and (path := _path(value, part)) is not None:
            return name, *path
    return None


def declared_fields(config: Any, source: str) -> dict[str, Any]:
    """The same of a configuration object, and of the folder or id that it was opened from, if any."""
    text = config.get_text_config()
    file = _file(source)
    if text is not config:  # A flat file, as Qwen2-VL's, names the whole model.
        file.pop("model_type", None)
    return {"library": _plain(text.to_dict()), "file": file}


EITHER_WAY = frozenset({"blt", "cpmant", "diffusion_gemma_text", "flaubert", "git", "hrm_text", "xlm"})
BOTH_WAYS = frozenset({"embedding_gemma2_text", "funnel"})  # Funnel also in its decoder.
# Decoders of other models, which have no head of their own.
CAUSAL = frozenset({"clip_text_model", "glm_image_text"})
BY_FLAG = frozenset(
    {"bert-generation"}
)  # Encoders unless `is_decoder`, beside those of masked language models.


def sees_future(model: nn.Module, stack: str) -> bool | None:
    """Whether queries of a stack should attend to later keys, by the model's architecture; None if
    undetermined. Decoders should not, nor text models of families that generate text from images.
    Encoders of masked language models should, unless `is_decoder` is set. A configuration with `is_causal` or
    `use_bidirectional_attention` takes precedence.

    Args:
        model: A Hugging Face model.
        stack: "encoder", "decoder" or "".
    """
    from transformers.models.auto.modeling_auto import (
        MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
        MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    )

    config: Any = model.config
    text = config.get_text_config()
    both = getattr(text, "use_bidirectional_attention", None)
    causal = getattr(text, "is_causal", None)
    if text.model_type in EITHER_WAY:
        return None
    if text.model_type in BOTH_WAYS:
        return True
    if text.model_type == "xlnet":
        return text.attn_type == "bi"
    if isinstance(both, str):  # "vision" leaves text causal
        both = both == "all"
    if isinstance(causal, bool) or both:
        return bool(both) or not causal
    if stack == "decoder" or config.is_encoder_decoder:
        return {"decoder": False, "encoder": True}.get(stack)
    if text.model_type in MODEL_FOR_MASKED_LM_MAPPING_NAMES or text.model_type in BY_FLAG:
        return not getattr(text, "is_decoder", False)
    generates = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.keys() | MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES.keys()
    known = {text.model_type, text.model_type.removesuffix("_text")} & (generates | CAUSAL)
    return False if known else None


def is_library_family(name: str) -> bool:
    """Whether the name of an architecture is one of the library's own, whose code is known."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    return name in CONFIG_MAPPING


def is_checkpoint(source: str) -> bool:
    """Whether a folder, or a model in the local cache, has a configuration of an architecture."""
    try:
        path = _config_path(source)
        if path is None:
            return False
        require_file(path)
        return "model_type" in json.loads(path.read_text(encoding="utf-8"))
    except (ImportError, ValueError, RecursionError):
        return False  # Without transformers there is no cache; no id may look like a path.


def _file(source: str) -> dict[str, Any]:
    """The configuration as it was written, its text part where it has parts; empty if there is none."""
    fields = _written(source)
    return fields.get("text_config", fields)


def _written(source: str) -> dict[str, Any]:
    """The whole configuration as it was written; empty if there is none."""
    path = _config_path(source) if source else None
    return {} if path is None else json.loads(path.read_text(encoding="utf-8"))


def _config_path(source: str) -> Path | None:
    """The file in a folder, or in the local cache of the hub."""
    folder = Path(source)
    if folder.is_dir():
        return folder / "config.json" if (folder / "config.json").is_file() else None
    from transformers.utils.hub import cached_file

    try:
        cached = cached_file(source, "config.json", local_files_only=True)
    except OSError:
        return None
    return Path(cached) if cached else None


def checkpoint_folder(source: str) -> Path:
    """The folder of a checkpoint, in the local cache where the source is an id of the hub."""
    path = _config_path(source)
    return Path(source) if path is None else path.parent


def _plain(fields: Any) -> Any:
    return json.loads(json.dumps(fields, default=str))
