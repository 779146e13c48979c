"""Find layers of linear attention with a fixed decay, and where their heads can be read."""

from collections.abc import Iterable
from dataclasses import dataclass

from torch import nn

# By architecture: the linear map whose output holds query, key and value of each head side by side, and the
# norm that receives the heads side by side.
PARTS = {"minimax": ("qkv_proj", "norm")}


@dataclass(frozen=True)
class LinearSite:
    """One layer of linear attention.

    Args:
        module: Dotted name of its attention module.
        projection: Dotted name of the map that gives queries, keys and values.
        heads: Dotted name of the module that receives the outputs of all heads.
    """

    module: str
    projection: str
    heads: str


def linear_sites(model: nn.Module, family: str, blocks: Iterable[str]) -> list[LinearSite]:
    """The layers of linear attention in some blocks, in their order; none in families without a fixed decay.

    Args:
        model: A Hugging Face model.
        family: Name of its architecture.
        blocks: Dotted names of blocks without softmax attention.
    """
    if family not in PARTS:
        return []
    projection, heads = PARTS[family]
    modules = {
        f"{block}.{name}": module
        for block in blocks
        for name, module in model.get_submodule(block).named_modules()
    }
    return [
        LinearSite(name, f"{name}.{projection}", f"{name}.{heads}")
        for name, module in modules.items()
        if isinstance(getattr(module, projection, None), nn.Linear) and hasattr(module, heads)
    ]
