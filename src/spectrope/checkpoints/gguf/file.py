"""Read GGUF files: metadata by key, and tensors dequantised one at a time."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from spectrope.core import ConfigError, UnsupportedError
from spectrope.store import require_file

MAGIC = b"GGUF"
MISSING = "GGUF files need the package gguf, which is not installed; pip install 'spectrope[gguf]'."


@dataclass(frozen=True, eq=False)
class GGUFFile:
    """An open GGUF file; tensors are mapped from disk and dequantised when they are asked for.

    Args:
        path: The file.
        reader: The `gguf` package's reader of it.
    """

    path: Path
    reader: Any

    @cached_property
    def tensors(self) -> dict[str, Any]:
        """Tensors by name, as the reader describes them."""
        return {tensor.name: tensor for tensor in self.reader.tensors}

    @cached_property
    def blocks(self) -> int:
        """How many layers have tensors."""
        numbers = (name.split(".")[1] for name in self.tensors if name.startswith("blk."))
        return max((int(number) + 1 for number in numbers if number.isdecimal()), default=0)

    @cached_property
    def architecture(self) -> str:
        """The runtime's name of the architecture.

        Raises:
            ConfigError: If the file names none.
        """
        value = self.value("general.architecture")
        if not isinstance(value, str) or not value:
            raise ConfigError(f"{self.path} has no general.architecture, so no runtime can load it.")
        return value

    def value(self, key: str) -> Any:
        """The metadata under a key; None where the file has no such key.

        Raises:
            ConfigError: If its value is damaged.
        """
        field = self.reader.fields.get(key)
        try:
            return None if field is None else field.contents()
        except Exception as error:  # The package decodes a value only now.
            raise ConfigError(f"{self.path} is damaged: {key}: {_first_line(error)}.") from None

    def get(self, *keys: str) -> Any:
        """The metadata under the first of some keys of the architecture that the file has."""
        values = (self.value(f"{self.architecture}.{key}") for key in keys)
        return next((value for value in values if value is not None), None)

    def number(self, *keys: str, default: float | None = None) -> float:
        """A positive number of the architecture.

        Raises:
            ConfigError: If it is missing without a default, or no positive finite number.
        """
        value = self.get(*keys)
        value = default if value is None else value
        name = f"{self.architecture}.{keys[0]}"
        if value is None:
            raise ConfigError(f"{self.path} has no {name}, without which no layer has a size.")
        whole = isinstance(value, int | float) and not isinstance(value, bool)
        if not whole or not 0 < value < math.inf:
            raise ConfigError(f"{self.path}: {name} must be a positive number; got {_short(value)}.")
        return float(value)

    def count(self, *keys: str, layer: int = 0, default: int | None = None) -> int:
        """A positive whole number of the architecture, or that of one layer where the file lists them.

        Raises:
            ConfigError: If it is missing without a default, no positive whole number, or a list too short.
        """
        value, name = self.get(*keys), f"{self.architecture}.{keys[0]}"
        if isinstance(value, list):
            if layer >= len(value):
                raise ConfigError(f"{self.path}: {name} lists {len(value)} layers; layer {layer} needs one.")
            value = value[layer]
        value = default if value is None else value
        if value is None:
            raise ConfigError(f"{self.path} has no {name}, without which no layer has a size.")
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ConfigError(f"{self.path}: {name} must be a positive whole number; got {_short(value)}.")
        return value

    def array(self, name: str) -> np.ndarray:
        """One tensor in float32, with the rows of a matrix first.

        Raises:
            ConfigError: If its data are damaged, or of a type that the package cannot dequantise.
        """
        from gguf import dequantize

        tensor = self.tensors[name]
        try:
            values = dequantize(tensor.data, tensor.tensor_type)
            values = np.asarray(values, dtype=np.float32).reshape([int(n) for n in tensor.shape][::-1])
        except Exception as error:  # The package raises errors of many kinds for damaged data.
            raise ConfigError(f"{self.path}: tensor {name} cannot be dequantised: {error}.") from None
        if not np.isfinite(values).all():
            raise ConfigError(f"{self.path}: tensor {name} holds numbers that are not finite.")
        return values

    def converted(self, names: Iterable[str], layers: int) -> dict[str, str]:
        """Names of a checkpoint's weights by the names that a conversion to this architecture gives them."""
        from gguf import MODEL_ARCH_NAMES, get_tensor_name_map

        numbers = {name: number for number, name in MODEL_ARCH_NAMES.items()}
        if self.architecture not in numbers:
            return {}
        known = get_tensor_name_map(numbers[self.architecture], layers)
        found: dict[str, str] = {}
        for name in names:
            for full in (name, f"model.{name}"):
                if (new := known.get_name(full, (".weight", ".bias"))) is not None:
                    found.setdefault(new, name)
        return found

    def type_of(self, name: str) -> str:
        """The type in which a tensor is stored, such as "Q8_0"."""
        return self.tensors[name].tensor_type.name

    @cached_property
    def types(self) -> str:
        """The most frequent storage type of query projections, shown in the title of an audit."""
        names = [name for name in self.tensors if name.endswith(("attn_q.weight", "attn_qkv.weight"))]
        kinds = [self.type_of(name) for name in names]
        return max(sorted(set(kinds)), key=kinds.count) if kinds else "no query projections"


def open_gguf(path: str | Path) -> GGUFFile:
    """A GGUF file, opened for reading.

    Raises:
        ConfigError: If there is no such file, it is no GGUF file, or it is damaged.
        UnsupportedError: If the package gguf is missing, or the file is one part of several.
    """
    path = Path(path)
    require_file(path)
    if not is_gguf(path):
        raise ConfigError(f"{path} is no GGUF file: it does not begin with the letters GGUF.")
    try:
        from gguf import GGUFReader
    except ImportError:
        raise UnsupportedError(MISSING) from None
    try:
        opened = GGUFFile(path, GGUFReader(path))
    except Exception as error:  # The reader raises errors of many kinds for damaged files.
        raise ConfigError(f"{path} is damaged: {_first_line(error)}.") from None
    parts = opened.value("split.count")
    if isinstance(parts, int) and parts > 1:
        raise UnsupportedError(
            f"{path} is one of {parts} parts of a model; join them first, with llama-gguf-split --merge."
        )
    return opened


def is_gguf(path: str | Path) -> bool:
    """Whether a path is a file that begins as GGUF files do."""
    try:
        with Path(path).open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except (OSError, ValueError):  # No file, no permission, or a name that cannot be one.
        return False


def _first_line(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0]}".rstrip(".") if text else type(error).__name__


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"
