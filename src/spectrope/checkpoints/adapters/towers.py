"""Find vision towers whose queries and keys turn with row and column, and feed them a picture."""

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from inspect import signature
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from spectrope.checkpoints.adapters.structure import fields_within
from spectrope.core import torch_stream
from spectrope.encodings import Pairing

Takes = Literal["pixels", "patches", "rows of patches", "patches and places"]
AxisSplit = Literal[
    "rows, columns",
    "columns, rows",
    "columns and rows in turn",
    "alternate frequencies",
    "time, rows, columns",
]
INPUTS = ("pixel_values", "pixel_values_videos", "input_features", "input_values")
SIDE = 2  # Side of merged blocks where it is an argument of the forward call.
KINDS = ("vision", "audio")  # In names of architectures.
GRID = (12, 16)  # Rows and columns of patches, no two alike, so that axes can be distinguished.


@dataclass(frozen=True)
class Windows:
    """Squares of a picture that some layers attend within.

    Args:
        side: Of a square, in blocks of patches that are merged later, by the configuration.
        whole: Whether a layer sees the whole picture, by the configuration and its number.
        anew: Whether rows and columns count anew in every window, and those of layers that see the whole
            picture are scaled to the side of a window.
    """

    side: Callable[[Any], int]
    whole: Callable[[Any, int], bool]
    anew: bool = False


@dataclass(frozen=True)
class TowerForm:
    """What an architecture's code does that its configuration does not say.

    Args:
        takes: A whole picture (b, c, height, width), patches with the rows and columns of their grid, the
            same with an axis of a batch before them, or patches with the column and row of each.
        split: Which pairs turn with the row and which with the column. With "alternate frequencies", rows
            take every other frequency of a single progression, from the first on, and columns the others.
            With "time, rows, columns", the first third turns with the picture of a video.
        pairing: How coordinates pair.
        normalised: Whether rows and columns are scaled to coordinates from -1 to 1, in units of whole turns.
        in_blocks: Whether patches are ordered by blocks that are merged later.
        windows: Which some layers attend within, if any.
        origin: Row and column of the first patch.
        of_one_size: Whether pictures have the declared size, and their patches come before any other token.
        class_angles: Name of the weight that holds the angles by which the class token turns, "" where it
            does not turn.
        by_halves: Whether pairs are formed within each half of a head.
        scale: Factor on dot products; None for 1 / √d.
    """

    takes: Takes
    split: AxisSplit = "rows, columns"
    pairing: Pairing = "halves"
    normalised: bool = False
    in_blocks: bool = False
    windows: Windows | None = None
    origin: float = 0.0
    of_one_size: bool = False
    class_angles: str = ""
    by_halves: bool = False
    scale: float | None = None


IN_BLOCKS = TowerForm("patches", in_blocks=True)
OF_QWEN = Windows(
    lambda config: config.window_size // config.spatial_merge_size // config.patch_size,
    lambda config, layer: layer in config.fullatt_block_indexes,
)
OF_MUSE = Windows(
    lambda config: config.pos_emb_height, lambda config, layer: config.layer_types[layer] == "full_attention"
)
OF_SAM = Windows(
    lambda config: config.window_size, lambda config, layer: layer in config.global_attn_indexes, anew=True
)
IN_WINDOWS = TowerForm("patches", in_blocks=True, windows=OF_QWEN)
MUSE = TowerForm("patches", split="columns, rows", origin=1.0, windows=OF_MUSE)
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
            "lfm3_vl_vision",
            "qwen2_vl_vision",
            "qwen3_5_moe_vision",
            "qwen3_5_vision",
            "qwen3_omni_moe_vision_encoder",
            "qwen3_vl_moe_vision",
            "qwen3_vl_vision",
            "qwen4_exp_vision",
            "video_llama_3_vision",
        ),
        IN_BLOCKS,
    ),
    **dict.fromkeys(("exaone4_5_vision", "qwen2_5_omni_vision_encoder", "qwen2_5_vl_vision"), IN_WINDOWS),
    "llama4_vision_model": TowerForm(
        "pixels", split="columns, rows", pairing="adjacent", origin=1.0, of_one_size=True
    ),
    "gemma4_vision": TowerForm("patches and places", split="columns, rows", by_halves=True, scale=1.0),
    "minimax_m3_vl_vision": TowerForm("patches", split="time, rows, columns", in_blocks=True),
    "mlcd_vision_model": TowerForm("pixels", class_angles="class_pos_emb"),
    "muse_glimmer_vision": MUSE,
    "muse_spark_vision": MUSE,
    "paddleocr_vl_vision": TowerForm("rows of patches"),
    "sam3_vit_model": TowerForm(
        "pixels", split="columns, rows", pairing="adjacent", windows=OF_SAM, of_one_size=True
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
        """Rows and columns of patches of the picture that it gets, multiples of those that are merged."""
        if self.form.of_one_size:
            sizes = zip(_pair(self.config.image_size), _pair(self.config.patch_size), strict=True)
            columns, rows = (whole // patch for whole, patch in sizes)
            return rows, columns
        names = ("pooling_kernel_size", "merge_size")
        unit = math.lcm(self._merged, *(int(getattr(self.config, name, 1)) for name in names))
        rows, columns = (max(1, side // unit) * unit for side in GRID)
        return rows, columns if columns > rows else rows + unit

    def within(self, layer: int) -> int | None:
        """Side of the windows in which a layer counts rows and columns anew; None if it does not."""
        windows = self.form.windows
        if windows is None or not windows.anew or windows.whole(self.config, layer):
            return None
        return windows.side(self.config)

    def places(self, layer: int) -> Int[Tensor, "n 2"]:
        """Row and column of each patch of a picture or window, in the order in which a layer gets them."""
        if (within := self.within(layer)) is not None:
            return _grid(within, within).view(-1, 2)
        blocks, windows = self._blocks(), self.form.windows
        if windows is None or windows.anew:
            return blocks.reshape(-1, 2)
        return torch.cat([part.reshape(-1, 2) for part in _windows(blocks, windows.side(self.config))])

    def numbers(self, layer: int) -> Int[Tensor, " t"]:
        """Number of each patch, row by row, in the order in which a layer gets them; -1 fills windows up."""
        rows, columns = self.grid
        if (within := self.within(layer)) is None:
            places = self.places(layer)
            return places[:, 0] * columns + places[:, 1]
        numbers = torch.arange(rows * columns).view(rows, columns)
        filled = torch.nn.functional.pad(numbers, (0, -columns % within, 0, -rows % within), value=-1)
        return filled.unfold(0, within, within).unfold(1, within, within).flatten()

    def step(self, layer: int) -> float:
        """Position of a layer's second row and column, of which those of a window are whole numbers."""
        windows = self.form.windows
        if windows is None or not windows.anew or self.within(layer) is not None:
            return 1.0
        return windows.side(self.config) / self.grid[1]

    def windows(self, layer: int) -> list[int]:
        """Patches of each window that a layer attends within, in their order; of one if all are alike."""
        rows, columns = self.grid
        if (within := self.within(layer)) is not None:
            return [within**2]
        windows, side = self.form.windows, self._merged
        if windows is None or windows.whole(self.config, layer):
            return [rows * columns]
        blocks = torch.zeros(rows // side, columns // side, side, side)
        return [part.numel() for part in _windows(blocks, windows.side(self.config))]

    def _blocks(self) -> Int[Tensor, "r c s s 2"]:
        """Row and column of each patch, block by block."""
        (rows, columns), side = self.grid, self._merged
        return _grid(rows, columns).view(rows // side, side, columns // side, side, 2).transpose(1, 2)

    @property
    def _merged(self) -> int:
        """Side of the blocks by which patches are ordered."""
        return getattr(self.config, "spatial_merge_size", SIDE) if self.form.in_blocks else 1

    def inputs(self, factors: Float[Tensor, "r c"] | None = None) -> dict[str, Any]:
        """Arguments of the forward call: a picture of the grid's size, of one colour or of one pattern.

        Args:
            factors: Factor on the pattern in each patch; None for a picture of one colour.
        """
        rows, columns = self.grid
        like = next(self.module.parameters())
        colours = (torch.ones(rows, columns) if factors is None else factors).to(like)
        if self.form.takes == "pixels":
            height, width = _pair(self.config.patch_size)
            pixels = colours.repeat_interleave(height, 0).repeat_interleave(width, 1)
            channels = getattr(self.config, "num_channels", 3)
            pattern = _pattern((channels, height, width), factors is not None).repeat(1, rows, columns)
            return {"pixel_values": pixels * pattern.to(like)[None]}
        places = self._blocks().reshape(-1, 2).to(like.device)
        shape = _embedding(self.module).weight.shape[1:]
        own = colours[places[:, 0], places[:, 1]].view(-1, *(1 for _ in shape))
        patches = own * _pattern(tuple(shape), factors is not None).to(like)
        taken = list(signature(self.module.forward).parameters)
        if self.form.takes == "patches and places":
            return {taken[0]: patches[None], taken[1]: places.flip(-1)[None]}
        patches = patches[None] if self.form.takes == "rows of patches" else patches
        inputs = {taken[0]: patches, "grid_thw": torch.tensor([[1, rows, columns]], device=like.device)}
        sizes = {"merge_sizes": torch.tensor([self._merged], device=like.device)}
        return inputs | {name: value for name, value in sizes.items() if name in taken}


def towers(model: nn.Module) -> list[Tower]:
    """The vision towers of a model, or the model itself if it is one, whose rotation is known."""
    found: list[Tower] = []
    for name, module in model.named_modules():
        family = getattr(getattr(module, "config", None), "model_type", "")
        inside = any(f"{name}.".startswith(f"{one.name}.") or not one.name for one in found)
        if family in FORMS and not inside and hasattr(module, "get_input_embeddings"):
            found.append(Tower(name, module, FORMS[family], fields_within(model, module.config)))
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
        if name and takes and not inside and _is_without_text(module):
            found.append(name)
    return found


def _is_without_text(module: Any) -> bool:
    """Whether a module is a model that has no part over text."""
    if not hasattr(module, "get_input_embeddings") or module.config.get_text_config() is not module.config:
        return False
    with contextlib.suppress(NotImplementedError):
        return not isinstance(module.get_input_embeddings(), nn.Embedding)
    return True


def _pattern(shape: tuple[int, ...], varied: bool) -> Tensor:
    """A patch of one colour, or one to which filters respond that ignore a patch's mean."""
    return torch.randn(shape, generator=torch_stream(0, "pattern")) if varied else torch.ones(shape)


def _grid(rows: int, columns: int) -> Int[Tensor, "r c 2"]:
    """Row and column at each place."""
    return torch.cartesian_prod(torch.arange(rows), torch.arange(columns)).view(rows, columns, 2)


def _windows(blocks: Tensor, side: int) -> Iterator[Tensor]:
    """Parts of a grid of blocks, window by window."""
    for band in blocks.split(side):
        yield from band.split(side, 1)


def _pair(size: Any) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else tuple(size)


def _embedding(module: nn.Module) -> Any:
    """The map of patches to vectors: what the class gives, else the first convolution or linear map."""
    own = None
    with contextlib.suppress(NotImplementedError):
        own = module.get_input_embeddings()  # pyright: ignore[reportCallIssue]
    if isinstance(own, nn.Conv2d | nn.Conv3d | nn.Linear):
        return own
    parts = list(module.modules())
    convolutions = (part for part in parts if isinstance(part, nn.Conv2d | nn.Conv3d))
    return next(convolutions, None) or next(part for part in parts if isinstance(part, nn.Linear))
