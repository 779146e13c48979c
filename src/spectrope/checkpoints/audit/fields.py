"""Read fields of a configuration under any of their names."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from spectrope.checkpoints.adapters import HEADS, WIDTHS
from spectrope.core import ConfigError


@dataclass(frozen=True)
class Declaration:
    """A configuration as the library holds it, under what the checkpoint's own file says.

    Args:
        library: Fields of the library's configuration object.
        file: Fields of the checkpoint's file, empty where there is none; they win.
        stacks: Both of each stack of layers that has a configuration of its own, by its name.
    """

    library: dict[str, Any]
    file: dict[str, Any]
    stacks: Mapping[str, Mapping[str, dict[str, Any]]] = field(default_factory=dict)

    def get(self, *names: str) -> Any:
        """The first of these fields that holds anything."""
        for fields in (self.file, self.library):
            for name in names:
                if fields.get(name) is not None:
                    return fields[name]
        return None

    def of(self, stack: str) -> "Declaration":
        """That of a stack of layers."""
        return Declaration(**self.stacks[stack]) if stack in self.stacks else self

    def at(self, layer: int) -> "Declaration":
        """The same with what it says of one layer apart (`per_layer_config`)."""
        own = (self.get("per_layer_config") or {}).get(str(layer))
        return replace(self, file=self.file | own) if own else self

    def number(self, *names: str) -> int:
        """The first of these fields, as a whole number.

        Raises:
            ConfigError: If the configuration has none of them.
        """
        value = self.get(*names)
        if value is None:
            raise ConfigError(f"the configuration of {self.model_type!r} has no {' or '.join(names)}.")
        return int(value)

    @property
    def model_type(self) -> str:
        """Name of the architecture."""
        return self.get("model_type") or ""

    @property
    def n_heads(self) -> int:
        """Query heads of a layer."""
        return self.number(*HEADS)

    @property
    def width(self) -> int:
        """Width of the hidden states."""
        return self.number(*WIDTHS)
