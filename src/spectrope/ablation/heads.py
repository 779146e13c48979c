"""Silencing heads: frozen descriptions of what to remove, and a context that always puts it back."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from spectrope.core.errors import require
from spectrope.evaluation.score import correct, predict
from spectrope.models.decoder import Block, Decoder
from spectrope.tasks.base import Batch


@dataclass(frozen=True)
class HeadAblation:
    """One head to silence, counted from 0, and what takes the place of its output."""

    layer: int
    head: int
    fill: Literal["zero"] = "zero"

    def check(self, model: Decoder) -> None:
        """Refuse a layer or head that the model does not have.

        Raises:
            ConfigError: One line with the range that exists.
        """
        config = model.config
        require(0 <= self.layer < config.n_layers, self, "layer", f"between 0 and {config.n_layers - 1}")
        require(0 <= self.head < config.n_heads, self, "head", f"between 0 and {config.n_heads - 1}")


@dataclass(frozen=True)
class HeadDrop:
    """What the removal of one head costs; layers and heads count from 1, as in the paper's figures.

    Args:
        layer: Layer of the head.
        head: Its number within the layer.
        fill: What took the place of its output.
        intact: Accuracy of the whole model, as a fraction.
        ablated: Accuracy without the head, as a fraction.
        drop: `intact - ablated`, in percentage points.
        n: Examples.
    """

    layer: int
    head: int
    fill: str
    intact: float
    ablated: float
    drop: float
    n: int


def silence(ablation: HeadAblation) -> Callable[[nn.Module, object, Tensor], Tensor]:
    """A forward hook for `Heads` that replaces one head's output."""

    def hook(module: nn.Module, inputs: object, heads: Float[Tensor, "b h t k"]) -> Tensor:
        kept = torch.ones(heads.shape[1], dtype=heads.dtype, device=heads.device)
        kept[ablation.head] = 0
        return heads * kept[:, None, None]

    return hook


@contextlib.contextmanager
def ablated(model: Decoder, *ablations: HeadAblation) -> Iterator[Decoder]:
    """The model with some heads silenced before the output projection; undone however the block ends.

    Raises:
        ConfigError: If the model has no such head.
    """
    for ablation in ablations:
        ablation.check(model)
    with contextlib.ExitStack() as hooks:
        for ablation in ablations:
            block = model.blocks[ablation.layer]
            assert isinstance(block, Block)
            hooks.callback(block.heads.register_forward_hook(silence(ablation)).remove)
        yield model


def sweep(
    model: Decoder,
    data: Batch,
    *,
    dtype: torch.dtype = torch.float32,
    watch: Callable[[int, int], None] = lambda done, total: None,
) -> list[HeadDrop]:
    """The drop of every head, one forward pass over `data` per head.

    Args:
        model: A trained decoder.
        data: Held-out examples.
        dtype: Precision of matrix products.
        watch: Called with the number of heads done and the number in all.
    """
    intact = correct(model, data, predict(model, data, dtype=dtype))
    drops = []
    for layer in range(model.config.n_layers):
        for head in range(model.config.n_heads):
            ablation = HeadAblation(layer, head)
            with ablated(model, ablation):
                without = correct(model, data, predict(model, data, dtype=dtype))
            drops.append(_drop(ablation, intact, without))
            watch(len(drops), model.config.n_layers * model.config.n_heads)
    return drops


def _drop(ablation: HeadAblation, intact: Tensor, without: Tensor) -> HeadDrop:
    before, after = intact.double().mean().item(), without.double().mean().item()
    names = asdict(ablation) | {"layer": ablation.layer + 1, "head": ablation.head + 1}
    return HeadDrop(**names, intact=before, ablated=after, drop=100 * (before - after), n=len(intact))
