"""Some layers of a checkpoint, without the weights of the others."""

import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from spectrope.core.errors import ConfigError, UnsupportedError

INDEX, SINGLE = "model.safetensors.index.json", "model.safetensors"
NUMBERS = ("moe_layers", "mlp_only_layers")  # Fields that list numbers of layers.
COUNTS = ("first_k_dense_replace",)  # Fields that count layers from the first on.
LAYER = re.compile(r"^((?:[A-Za-z_][^.]*\.)+)(\d+)(?=\.)")


def parse_layers(text: str) -> slice:
    """The layers that "4:8", ":4", "-2:" or "5" names, as Python counts them.

    Raises:
        ConfigError: If it is none of these.
    """
    found = re.fullmatch(r"(-?\d+)?(:)?(-?\d+)?", text.strip())
    if found is None or not any(found.groups()):
        raise ConfigError(f"layers are given as FIRST:LAST+1, such as 0:4, or as one number; got {text!r}.")
    start, colon, stop = found.groups()
    first = int(start) if start else None
    if colon is None:
        return slice(first, int(start) + 1 or None)
    return slice(first, int(stop) if stop else None)


def chosen_layers(config: Any, layers: slice) -> range:
    """Numbers of the layers that a slice takes of a configuration's.

    Raises:
        ConfigError: If it takes none.
        UnsupportedError: If the model has two stacks.
    """
    if config.is_encoder_decoder:
        raise UnsupportedError("layers can be chosen of a model with one stack; this one has two.")
    n = config.get_text_config().num_hidden_layers
    chosen = range(n)[layers]
    if not chosen:
        raise ConfigError(f"layers must take at least one of 0 to {n - 1}; got {_text(layers)}.")
    return chosen


def cut_config(config: Any, chosen: range) -> Any:
    """A configuration of the chosen layers alone, with what it says layer by layer cut likewise."""
    cut = copy.deepcopy(config)
    text = cut.get_text_config()
    n = text.num_hidden_layers
    for name, value in text.to_dict().items():
        if name in COUNTS and isinstance(value, int):
            setattr(text, name, max(value - chosen.start, 0))
        elif name in NUMBERS and value is not None:
            setattr(text, name, [i - chosen.start for i in value if i in chosen])
        elif isinstance(value, list | tuple) and len(value) == n and not _of_tokens(name):
            setattr(text, name, value[chosen.start : chosen.stop])
    text.num_hidden_layers = len(chosen)
    return cut


def read_layers(source: str, chosen: range, **where: Any) -> dict[str, Tensor]:
    """The weights of the chosen layers, numbered from 0, and of what lies in no layer.

    Only the files that hold them are opened, and of these only their entries are read.

    Args:
        source: Folder, or id of a model.
        chosen: Numbers of the layers.
        where: Options of the library's search for files, such as `local_files_only`.

    Raises:
        UnsupportedError: If there are no safetensors.
    """
    from safetensors import safe_open

    tensors: dict[str, Tensor] = {}
    for file, names in _files(source, chosen, where):
        with safe_open(file, framework="pt") as opened:
            for name in names if names is not None else opened.keys():
                if (renamed := _renumbered(name, chosen)) is not None:
                    tensors[renamed] = opened.get_tensor(name)
    return tensors


def renumber(model: nn.Module, chosen: range) -> None:
    """Give the layers the numbers that they have in the whole model."""
    lists = (module for module in model.modules() if isinstance(module, nn.ModuleList))
    stack = next(module for module in lists if len(module) == len(chosen))
    blocks = list(stack)
    stack._modules.clear()
    stack._modules.update({str(number): block for number, block in zip(chosen, blocks, strict=True)})


def _files(source: str, chosen: range, where: dict[str, Any]) -> Iterator[tuple[Path, list[str] | None]]:
    """Files that hold wanted weights, with the names of these; None where the file itself lists them."""
    index = _find(source, INDEX, where)
    if index is None:
        single = _find(source, SINGLE, where)
        if single is None:
            raise UnsupportedError(f"{source} has no safetensors, the only format of which layers are read.")
        yield single, None
        return
    placed: dict[str, list[str]] = {}
    for name, file in json.loads(index.read_text(encoding="utf-8"))["weight_map"].items():
        if _renumbered(name, chosen) is not None:
            placed.setdefault(file, []).append(name)
    for file, names in placed.items():
        found = _find(source, file, where)
        if found is None:
            raise ConfigError(f"{source} lacks {file}, which holds {names[0]}.")
        yield found, names


def _find(source: str, name: str, where: dict[str, Any]) -> Path | None:
    from transformers.utils.hub import cached_file

    found = cached_file(source, name, _raise_exceptions_for_missing_entries=False, **where)
    return Path(found) if found else None


def _renumbered(name: str, chosen: range) -> str | None:
    """The name of a weight with its layer counted from the first chosen one; None in other layers."""
    found = LAYER.match(name)
    if found is None:
        return name
    number = int(found[2])
    return f"{found[1]}{number - chosen.start}{name[found.end() :]}" if number in chosen else None


def _of_tokens(name: str) -> bool:
    return name.endswith("token_id") or name == "architectures"


def _text(layers: slice) -> str:
    return f"{'' if layers.start is None else layers.start}:{'' if layers.stop is None else layers.stop}"
