"""The checkpoint that a GGUF file was converted from: its configuration, and weights one at a time."""

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from spectrope.checkpoints.adapters.load import read_declaration
from spectrope.checkpoints.audit.fields import Declaration
from spectrope.core import ConfigError


@dataclass(frozen=True, eq=False)
class Source:
    """A checkpoint in safetensors that is not loaded; no code of it runs.

    Args:
        folder: Its folder.
        declaration: Its configuration.
    """

    folder: Path
    declaration: Declaration

    @cached_property
    def files(self) -> dict[str, Path]:
        """The file that holds each weight, by the weight's name."""
        from safetensors import SafetensorError, safe_open

        placed: dict[str, Path] = {}
        for path in self._paths():
            try:
                with safe_open(path, framework="pt") as opened:
                    placed |= dict.fromkeys(opened.keys(), path)
            except SafetensorError as error:
                raise ConfigError(f"{path} is damaged: {error}; save the source anew.") from None
        return placed

    def _paths(self) -> list[Path]:
        """The files that transformers would load: other formats of the weights may lie beside them.

        Raises:
            ConfigError: If a file is missing that their index names.
        """
        whole, index = self.folder / "model.safetensors", self.folder / "model.safetensors.index.json"
        if whole.is_file():
            return [whole]
        if not index.is_file():
            return sorted(self.folder.glob("*.safetensors"))
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
        if missing := [name for name in names if not (self.folder / name).is_file()]:
            raise ConfigError(f"{self.folder} lacks {missing[0]}, which {index.name} names; save it anew.")
        return [self.folder / name for name in names]

    def array(self, name: str) -> np.ndarray:
        """One weight in float32."""
        from safetensors import safe_open

        with safe_open(self.files[name], framework="pt") as opened:
            tensor: Any = opened.get_tensor(name)
        return tensor.to(torch.float32).numpy()


def open_source(folder: str | Path) -> Source:
    """The checkpoint in a folder.

    Raises:
        ConfigError: If the folder holds no checkpoint in safetensors, or its configuration cannot be read.
        UnsupportedError: If its weights are pickled or quantised, or it needs code of its own.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise ConfigError(
            f"the source of a GGUF file is the folder of a checkpoint; {folder} is not a folder."
        )
    return Source(folder, Declaration(**read_declaration(folder)))
