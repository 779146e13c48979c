"""Load some layers of a checkpoint without the weights of the others."""

import copy
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from spectrope.checkpoints.adapters.structure import layer_name
from spectrope.core import ConfigError, UnsupportedError

INDEX, SINGLE = "model.safetensors.index.json", "model.safetensors"
NUMBERS = ("moe_layers", "mlp_only_layers")  # Fields that list numbers of layers.
LAYERS = {  # Fields that count the layers of a stack.
    "": ("num_hidden_layers",),
    "encoder": ("encoder_layers", "num_layers"),
    "decoder": ("decoder_layers", "num_decoder_layers"),
}
LENT = ("relative_attention_bias",)  # Weights of a first layer that the others use too.
COUNTS = ("first_k_dense_replace",)  # Fields that count layers from the first on.
LAYER = re.compile(r"^((?:[A-Za-z_][^.]*\.)+)(\d+)(?=\.)")


def parse_layers(text: str) -> slice:
    """The layers that "4:8", ":4", "-2:" or "5" names, as Python counts them.

    Raises:
        ConfigError: If it is none of these.
    """
    match = re.fullmatch(r"(-?\d+)?(:)?(-?\d+)?", text.strip())
    if match is None or not any(match.groups()):
        raise ConfigError(f"layers are given as FIRST:LAST+1, such as 0:4, or as one number; got {text!r}.")
    start, colon, stop = match.groups()
    first = int(start) if start else None
    if colon is None:
        return slice(first, int(start) + 1 or None)
    return slice(first, int(stop) if stop else None)


@dataclass(frozen=True)
class Chosen:
    """Layers that a slice takes of every stack.

    Args:
        stacks: Numbers of the layers by the stack's name, "" where there is one alone.
        fields: Name of the configuration's field that counts the layers of each.
        whole: Names of parts for pictures or sounds, whose layers are all taken.
    """

    stacks: Mapping[str, range]
    fields: Mapping[str, str]
    whole: frozenset[str] = frozenset()

    def renamed(self, weight: str) -> str | None:
        """The name of a weight with its layer counted from the first chosen one; None in other layers."""
        match = LAYER.match(weight)
        if match is None or self.is_whole(weight):
            return weight
        chosen, number = self._of(weight), int(match[2])
        return f"{match[1]}{number - chosen.start}{weight[match.end() :]}" if number in chosen else None

    def lends(self, weight: str) -> bool:
        """Whether a layer that is not chosen, the first, keeps this for all that have none of their own."""
        match = LAYER.match(weight)
        return (
            match is not None
            and not self.is_whole(weight)
            and int(match[2]) == 0
            and any(name in weight for name in LENT)
        )

    def is_whole(self, name: str) -> bool:
        """Whether a weight or module is of a part whose layers are all taken."""
        return not self.whole.isdisjoint(name.split("."))

    def _of(self, weight: str) -> range:
        return self.stacks.get("") or self.stacks[layer_name(weight)[0]]


def chosen_layers(config: Any, layers: slice, whole: Iterable[str] = ()) -> Chosen:
    """Numbers of the layers that a slice takes of each of a configuration's stacks.

    Args:
        config: Of a model.
        layers: The slice.
        whole: Dotted names of parts whose layers are all taken. Files may have other names before their last.

    Raises:
        ConfigError: If it takes none of a stack.
        UnsupportedError: If the configuration of a model with two stacks does not count the layers of each.
    """
    text = config.get_text_config()
    fields: dict[str, str] = {}
    for stack in ("encoder", "decoder") if config.is_encoder_decoder else ("",):
        known = [name for name in LAYERS[stack] if getattr(text, name, None) is not None]
        if not known:
            raise UnsupportedError(
                f"the configuration of {config.model_type!r} counts no layers of its {stack}."
            )
        fields[stack] = known[0]
    stacks = {stack: range(getattr(text, name))[layers] for stack, name in fields.items()}
    if not all(stacks.values()):
        last = min(getattr(text, name) for name in fields.values()) - 1
        raise ConfigError(f"layers must take at least one of 0 to {last}; got {_text(layers)}.")
    return Chosen(stacks, fields, frozenset(name.rpartition(".")[2] for name in whole))


def cut_config(config: Any, chosen: Chosen) -> Any:
    """A configuration of the chosen layers alone, with what it says layer by layer cut likewise."""
    cut = copy.deepcopy(config)
    text = cut.get_text_config()
    if (only := chosen.stacks.get("")) is not None:
        _cut_fields(text, only)
    for stack, name in chosen.fields.items():
        setattr(text, name, len(chosen.stacks[stack]))
    return cut


def _cut_fields(text: Any, chosen: range) -> None:
    """Cut what a configuration of one stack says layer by layer."""
    n = text.num_hidden_layers
    for name, value in text.to_dict().items():
        if name in COUNTS and isinstance(value, int):
            setattr(text, name, max(value - chosen.start, 0))
        elif name in NUMBERS and value is not None:
            setattr(text, name, [i - chosen.start for i in value if i in chosen])
        elif isinstance(value, list | tuple) and len(value) == n and not _of_tokens(name):
            setattr(text, name, value[chosen.start : chosen.stop])


def read_layers(source: str, chosen: Chosen, **where: Any) -> dict[str, Tensor]:
    """The weights of the chosen layers, numbered from 0, and of what lies in no layer.

    Only the files that hold them are opened, and of these only their entries are read.

    Args:
        source: Folder, or id of a model.
        chosen: The layers.
        where: Options of the library's search for files, such as `local_files_only`.

    Raises:
        UnsupportedError: If there are no safetensors.
    """
    from safetensors import safe_open

    lent: dict[str, Tensor] = {}
    tensors: dict[str, Tensor] = {}
    for file, names in _files(source, chosen, where):
        with safe_open(file, framework="pt") as opened:
            for name in names if names is not None else opened.keys():
                if (renamed := chosen.renamed(name)) is not None:
                    tensors[renamed] = opened.get_tensor(name)
                elif chosen.lends(name):
                    lent[name] = opened.get_tensor(name)
    return lent | tensors


def renumber(model: nn.Module, chosen: Chosen, config: Any) -> None:
    """Give the layers the numbers that they have in the whole model, and remember which are missing.

    Args:
        model: Of the chosen layers alone.
        chosen: The layers.
        config: Of the whole model.
    """
    text = config.get_text_config()
    lists = [
        (name, module)
        for name, module in model.named_modules()
        if isinstance(module, nn.ModuleList) and not chosen.is_whole(name)
    ]
    for stack, numbers in chosen.stacks.items():
        inside = (module for name, module in lists if not stack or stack in name.split("."))
        layers: Any = next(module for module in inside if len(module) == len(numbers))
        blocks = list(layers)
        layers._modules.clear()
        layers._modules.update({str(number): block for number, block in zip(numbers, blocks, strict=True)})
        every = range(getattr(text, chosen.fields[stack]))
        layers.omitted_layers = [number for number in every if number not in numbers]


def omitted_layers(model: nn.Module) -> tuple[str, ...]:
    """Names of the layers that were not loaded, such as "2" or "encoder 2"; none of a whole model."""
    return tuple(
        f"{layer_name(f'{name}.{number}')[0]} {number}".strip()
        for name, module in model.named_modules()
        for number in getattr(module, "omitted_layers", ())
    )


def _files(source: str, chosen: Chosen, where: dict[str, Any]) -> Iterator[tuple[Path, list[str] | None]]:
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
        if chosen.renamed(name) is not None or chosen.lends(name):
            placed.setdefault(file, []).append(name)
    for file, names in placed.items():
        path = _find(source, file, where)
        if path is None:
            raise ConfigError(f"{source} lacks {file}, which holds {names[0]}.")
        yield path, names


def _find(source: str, name: str, where: dict[str, Any]) -> Path | None:
    from transformers.utils.hub import cached_file

    cached = cached_file(source, name, _raise_exceptions_for_missing_entries=False, **where)
    return Path(cached) if cached else None


def _of_tokens(name: str) -> bool:
    return name.endswith("token_id") or name == "architectures"


def _text(layers: slice) -> str:
    return f"{'' if layers.start is None else layers.start}:{'' if layers.stop is None else layers.stop}"
