"""Find vision towers whose queries and keys turn with row and column, and feed them a picture."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import Any, Literal

import torch
from jaxtyping import Int
from torch import Tensor, nn

from spectrope.encodings import Pairing

Takes = Literal["pixels", "patches"]
AxisSplit = Literal["rows, columns", "columns, rows", "columns and rows in turn", "alternate frequencies"]
INPUTS = ("pixel_values", "pixel_values_videos", "input_features", "input_values")
KINDS = ("vision", "audio")  # In names of architectures.
GRID = (12, 16)  # Rows and columns of patches, no two alike, so that axes can be distinguished.


@dataclass(frozen=True)
class TowerForm:
    """What an architecture's code does that its configuration does not say.

    Args:
        takes: A whole picture (b, c, height, width), or patches with the rows and columns of their grid.
        split: Which pairs turn with the row and which with the column. With "alternate frequencies", rows
            take every other frequency of a single progression, from the first on, and columns the others.
        pairing: How coordinates pair.
        normalised: Whether rows and columns are scaled to coordinates from -1 to 1, in units of whole turns.
        in_blocks: Whether patches are ordered by blocks that are merged later.
        in_windows: Whether blocks are ordered by windows, which some layers attend within.
        origin: Row and column of the first patch.
        of_one_size: Whether pictures are squares of the declared size, behind which comes a class token.
    """

    takes: Takes
    split: AxisSplit = "rows, columns"
    pairing: Pairing = "halves"
    normalised: bool = False
    in_blocks: bool = False
    in_windows: bool = False
    origin: float = 0.0
    of_one_size: bool = False


IN_BLOCKS = TowerForm("patches", in_blocks=True)
IN_WINDOWS = TowerForm("patches", in_blocks=True, in_windows=True)
NORMALISED = TowerForm("pixels", normalised=True)
FORMS = {
    "dinov3_vit": NORMALISED,
    "sapiens2": NORMALISED,
    "pixtral": TowerForm("pixels", split="alternate frequencies"),
    **dict.fromkeys(
        (
            "cohere_compass_vision",
            "ernie4_5_vl_moe_vision",
            "glm4v_moe_vision",
            "glm4v_vision",
            "glm5_next_vision",
            "glm_ocr_vision",
            "qwen2_vl_vision",
            "qwen3_5_moe_vision",
            "qwen3_5_vision",
            "qwen3_omni_moe_vision_encoder",
            "qwen3_vl_moe_vision",
            "qwen3_vl_vision",
            "qwen4_exp_vision",
        ),
        IN_BLOCKS,
    ),
    **dict.fromkeys(("exaone4_5_vision", "qwen2_5_omni_vision_encoder", "qwen2_5_vl_vision"), IN_WINDOWS),
    "llama4_vision_model": TowerForm(
        "pixels", split="columns, rows", pairing="adjacent", origin=1.0, of_one_size=True
    ),
    "step3p5_vision": TowerForm("pixels", split="columns, rows"),
    "kimi_k25_vision": TowerForm("patches", split="columns and rows in turn"),
}


@dataclass(frozen=True, eq=False)
class Tower:
    """A vision tower.

    Args:
        name: Dotted name in the model, "" for the model itself.
        module: The tower.
        form: Of its architecture.
        declared: Its configuration: as the library holds it, and as the checkpoint's file says it.
    """

    name: str
    module: nn.Module
    form: TowerForm
    declared: dict[str, Any]

    @property
    def config(self) -> Any:
        """Configuration of the tower as it runs."""
        return self.module.config

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of patches of the picture that it gets."""
        if not self.form.of_one_size:
            return GRID
        side = self.config.image_size // self.config.patch_size
        return side, side

    def places(self) -> Int[Tensor, "n 2"]:
        """Row and column of each patch, in the order in which layers get them."""
        rows, columns = self.grid
        places = torch.cartesian_prod(torch.arange(rows), torch.arange(columns)).view(rows, columns, 2)
        if not self.form.in_blocks:
            return places.view(-1, 2)
        side = self.config.spatial_merge_size
        blocks = places.view(rows // side, side, columns // side, side, 2).transpose(1, 2)
        if not self.form.in_windows:
            return blocks.reshape(-1, 2)
        return torch.cat([part.reshape(-1, 2) for part in _windows(blocks, self._blocks_per_window)])

    def windows(self, layer: int) -> list[int]:
        """Patches of each window that a layer attends within, in their order."""
        rows, columns = self.grid
        if not self.form.in_windows or layer in self.config.fullatt_block_indexes:
            return [rows * columns]
        side = self.config.spatial_merge_size
        blocks = torch.zeros(rows // side, columns // side, side, side)
        return [part.numel() for part in _windows(blocks, self._blocks_per_window)]

    @property
    def _blocks_per_window(self) -> int:
        """Along either axis."""
        config = self.config
        return config.window_size // config.spatial_merge_size // config.patch_size

    def inputs(self) -> dict[str, Any]:
        """Arguments of the forward call: a picture of one colour, of the size of the grid."""
        rows, columns = self.grid
        like = next(self.module.parameters())
        if self.form.takes == "pixels":
            height, width = _pair(self.config.patch_size)
            shape = (1, getattr(self.config, "num_channels", 3), rows * height, columns * width)
            return {"pixel_values": like.new_ones(shape)}
        patch = _embedding(self.module).weight.shape[1:]
        return {
            self._argument: like.new_ones(rows * columns, *patch),
            "grid_thw": torch.tensor([[1, rows, columns]], device=like.device),
        }

    @property
    def _argument(self) -> str:
        return next(iter(signature(self.module.forward).parameters))


def towers(model: nn.Module) -> list[Tower]:
    """The vision towers of a model, or the model itself if it is one, whose rotation is known."""
    found: list[Tower] = []
    for name, module in model.named_modules():
        family = getattr(getattr(module, "config", None), "model_type", "")
        inside = any(f"{name}.".startswith(f"{one.name}.") or not one.name for one in found)
        if family in FORMS and not inside and hasattr(module, "get_input_embeddings"):
            found.append(Tower(name, module, FORMS[family], _declared(model, family)))
    return found


def is_tower(model: nn.Module) -> bool:
    """Whether a model is such a tower itself, without a part over tokens."""
    return any(not tower.name for tower in towers(model))


def other_towers(model: nn.Module) -> list[str]:
    """Dotted names of the parts of a model that take pictures or sounds and are none of `towers`."""
    known = [one.name for one in towers(model)]
    found: list[str] = []
    for name, module in model.named_modules():
        family = str(getattr(getattr(module, "config", None), "model_type", ""))
        takes = getattr(module, "main_input_name", "") in INPUTS or any(kind in family for kind in KINDS)
        inside = any(f"{name}.".startswith(f"{one}.") for one in (*found, *known))
        if name and takes and not inside and hasattr(module, "get_input_embeddings"):
            found.append(name)
    return found


def _declared(model: nn.Module, family: str) -> dict[str, Any]:
    """The part of a model's configuration that is of this family."""
    whole: Any = getattr(model, "whole_config", model.config)
    parts = [part for part in _parts(whole.to_dict()) if part.get("model_type") == family]
    path = Path(getattr(whole, "_name_or_path", "") or "") / "config.json"
    written = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    file = [part for part in _parts(written) if part.get("model_type") == family]
    return {"library": parts[0] if parts else whole.to_dict(), "file": file[0] if file else {}}


def _parts(fields: dict[Any, Any]) -> Iterator[dict[Any, Any]]:
    """A configuration and those inside it."""
    yield fields
    for value in fields.values():
        if isinstance(value, dict):
            yield from _parts(value)


def _windows(blocks: Tensor, side: int) -> Iterator[Tensor]:
    """Parts of a grid of blocks, window by window."""
    for band in blocks.split(side):
        yield from band.split(side, 1)


def _pair(size: Any) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else tuple(size)


def _embedding(module: nn.Module) -> Any:
    """The map of patches to vectors: the first convolution, else the first linear map."""
    parts = list(module.modules())
    convolutions = (part for part in parts if isinstance(part, nn.Conv2d | nn.Conv3d))
    return next(convolutions, None) or next(part for part in parts if isinstance(part, nn.Linear))
