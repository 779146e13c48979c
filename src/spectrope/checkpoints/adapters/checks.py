"""Checks of the files of a checkpoint before it is loaded."""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from spectrope.checkpoints.adapters.declared_values import check_values
from spectrope.core import ConfigError, UnsupportedError
from spectrope.store import require_file

PICKLED = ("*.bin", "*.pt", "*.pth", "*.ckpt")
ADAPTERS = ("adapter_config.json", "adapter_model.safetensors", "adapter_model.bin")
COUNTS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "decoder_layers")
TABLES = ("embed_tokens.weight", "word_embeddings.weight", "wte.weight", "embed_in.weight", "shared.weight")
TABLE_SIZES = ("vocab_size", "hidden_size")  # Rows and columns of a table of tokens.
# Columns before a map to the hidden size.
NARROWER = ((), ("embedding_size", "word_embed_proj_dim", "input_embedding_size"))
MOST_LAYERS = 1000  # Above it a number of layers is compared with the weights before any are allocated.


def check_folder(folder: Path, *, allow_pickle: bool, trust_remote_code: bool) -> None:
    """Raise an error if a folder is not a checkpoint, or if its files may not be read or executed.

    Args:
        folder: Of the checkpoint.
        allow_pickle: Whether weights may be unpickled.
        trust_remote_code: Whether code that it names may run.

    Raises:
        ConfigError: If it lacks a configuration or weights, its index leads out of it, or its configuration
            holds a base that is no positive number or more layers than its weights.
        UnsupportedError: If it holds an adapter, pickled or quantised weights, or names a kernel of the hub.
    """
    if adapter := next((name for name in ADAPTERS if (folder / name).is_file()), None):
        raise UnsupportedError(
            f"{folder} holds an adapter ({adapter}), which is not loaded; merge it into its base "
            "with merge_and_unload, and save that."
        )
    if not (folder / "config.json").is_file():
        raise ConfigError(f"{folder} holds no config.json, so it is no checkpoint.")
    _check_weights(folder, allow_pickle)
    config = _read(folder / "config.json")
    if "results_version" in config and "model_type" not in config:
        raise ConfigError(f"{folder} is a run of this program, and no Hugging Face checkpoint.")
    _check_quantised(folder, config)
    if not trust_remote_code:
        _check_kernels(folder, config)
    check_values(folder / "config.json", list(_parts(config)))
    _check_layers(folder, config)


def _read(path: Path) -> dict[str, Any]:
    """A JSON object, or an empty one where the file holds none, of which the library complains itself."""
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}


def _check_weights(folder: Path, allow_pickle: bool) -> None:
    for path in folder.iterdir():
        require_file(path)
    for index in sorted(folder.glob("*.index.json")):
        _check_index(index, allow_pickle)
    if any(folder.glob("*.safetensors")):
        return
    pickled = sorted(path.name for pattern in PICKLED for path in folder.glob(pattern))
    if not pickled:
        raise ConfigError(f"{folder} holds no weights: no *.safetensors file.")
    if not allow_pickle:
        raise UnsupportedError(
            f"{folder} holds only pickled weights ({pickled[0]}), and unpickling can run code; if you trust "
            f"them, save them as safetensors with save_pretrained, or pass allow_pickle=True."
        )


def _check_index(index: Path, allow_pickle: bool) -> None:
    """Whether an index names safetensors in its own folder."""
    weights = _read(index).get("weight_map")
    if not isinstance(weights, dict) or not all(isinstance(file, str) for file in weights.values()):
        raise ConfigError(f"{index} has no weight_map from names of weights to names of files; save it anew.")
    for file in sorted(set(weights.values())):
        if os.path.basename(file) != file or file in ("", ".", "..") or "\\" in file:
            raise ConfigError(f"{index} maps weights to {file!r}, which is not in its folder; save it anew.")
        meant = index.name.endswith(
            ".safetensors.index.json"
        )  # others are read where pickle is allowed alone
        if meant and not file.endswith(".safetensors") and not allow_pickle:
            raise UnsupportedError(
                f"{index} maps weights to {file!r}, which is not a safetensors file, and unpickling can run "
                "code; save them as safetensors with save_pretrained where you trust them, or give "
                "allow_pickle=True."
            )


def _check_quantised(folder: Path, config: dict[str, Any]) -> None:
    quantised = _objects(config, "quantization_config")
    if (method := next((one.get("quant_method", "unknown") for one in quantised), None)) is not None:
        raise UnsupportedError(
            f"{folder} holds quantised weights (quant_method {method!r}), which are not audited; give the "
            "checkpoint before quantisation, or save a dequantised one."
        )


def _check_kernels(folder: Path, config: dict[str, Any]) -> None:
    for part in _parts(config):
        for name in ("attn_implementation", "_attn_implementation", "_attn_implementation_internal"):
            if "/" in str(part.get(name) or ""):
                raise UnsupportedError(
                    f"{folder}/config.json asks for the attention kernel {part[name]!r} of the hub, whose "
                    f"code is not run; remove {name} from it, or give trust_remote_code=True."
                )


def _check_layers(folder: Path, config: dict[str, Any]) -> None:
    for part in _parts(config):
        for name in COUNTS:
            count = part.get(name)
            if not isinstance(count, int) or count <= MOST_LAYERS:
                continue
            held = 1 + max((_layer_of(weight) for weight in _names(folder)), default=-1)
            if count > held:
                raise ConfigError(
                    f"{folder}/config.json: {name} must be the number of layers that the weights hold, "
                    f"{held}; got {count}."
                )


def _layer_of(weight: str) -> int:
    return max((int(part) for part in weight.split(".") if re.fullmatch(r"\d{1,9}", part)), default=-1)


def check_sizes(folder: Path, config: Any) -> None:
    """Refuse sizes that a configuration leaves out where its class's own are larger than the weights'.

    A model of the class's sizes may not fit into memory, and could not hold the weights.

    Args:
        folder: Of the checkpoint.
        config: As the library reads it.

    Raises:
        ConfigError: If the table of tokens has fewer rows or columns than the model would get.
    """
    text, file = config.get_text_config(), folder / "config.json"
    parts = list(_parts(_read(file)))
    tables = dict(_tables(folder))
    for axis, field in enumerate(TABLE_SIZES):
        size, names = getattr(text, field, None), {field, text.attribute_map.get(field, field)}
        stated = any(part.get(name) is not None for part in parts for name in names)
        if stated or not isinstance(size, int) or not tables:
            continue
        name, shape = max(tables.items(), key=lambda table: table[1][axis])
        least = min([size, *(getattr(text, other, None) or size for other in NARROWER[axis])])
        if shape[axis] < least:
            raise ConfigError(
                f"{file}: {field} is missing, and what {type(text).__name__} takes instead, {size}, is not "
                f"that of the weights: {name} has shape {shape[0]} x {shape[1]}; state {field}."
            )


def _tables(folder: Path) -> Iterator[tuple[str, tuple[int, int]]]:
    """Names and shapes of tables of tokens, from the headers of the files."""
    for opened in _headers(folder):
        for name in opened.keys():  # noqa: SIM118
            if name.endswith(TABLES):
                rows, columns = opened.get_slice(name).get_shape()
                yield name, (rows, columns)


def _names(folder: Path) -> Iterator[str]:
    """Names of the weights, from the headers of the files."""
    for opened in _headers(folder):
        yield from opened.keys()


def _headers(folder: Path) -> Iterator[Any]:
    """The files of weights, of which no weight is read."""
    from safetensors import SafetensorError, safe_open

    for file in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(file, framework="pt") as opened:
                yield opened
        except SafetensorError:  # of which loading complains
            continue


def _objects(config: dict[str, Any], name: str) -> Iterator[dict[str, Any]]:
    yield from (part[name] for part in _parts(config) if isinstance(part.get(name), dict))


def _parts(fields: Any) -> Iterator[dict[str, Any]]:
    """An object and every object within it."""
    waiting = [fields]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            yield one
            waiting += one.values()
