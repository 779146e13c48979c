"""Find indexers, which choose the keys that sparse attention reads, and see their queries and keys."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from spectrope.checkpoints.adapters.hooks import running
from spectrope.encodings import Pairing

PRODUCTS = (torch.matmul, Tensor.matmul, Tensor.__matmul__)


@dataclass(frozen=True)
class IndexerForm:
    """What an architecture's indexer does that its configuration does not say.

    Args:
        pairing: How its rotated coordinates pair, which may differ from those of the layer's own attention.
        turns_last: Whether the last coordinates turn, rather than the first.
    """

    pairing: Pairing
    turns_last: bool = False


FORMS = {
    "axk2": IndexerForm("halves"),
    "deepseek_v32": IndexerForm("halves"),
    "dots3_note_text": IndexerForm("adjacent"),
    "glm_moe_dsa": IndexerForm("adjacent"),
    "hy_v4": IndexerForm("halves", turns_last=True),
    "minimax_m3_vl_text": IndexerForm("halves"),
    "mistral_large4_text": IndexerForm("adjacent"),
}


@dataclass(frozen=True, eq=False)
class Indexed:
    """Queries and keys whose products an indexer takes.

    Args:
        q: Of all its heads, with shape (b, h, t, d).
        k: Shared by its heads, with shape (b, 1, t, d).
    """

    q: Float[Tensor, "b h t d"]
    k: Float[Tensor, "b 1 t d"]


def indexers(model: nn.Module) -> list[str]:
    """Dotted names of the indexers of a model, in their order."""
    return [name for name, module in model.named_modules() if type(module).__name__.endswith("Indexer")]


@contextmanager
def watched_indexers(model: nn.Module, names: list[str], length: int) -> Iterator[dict[str, Indexed]]:
    """While the block runs, keep the queries and keys of indexers that take products of all of them.

    Args:
        model: The model.
        names: Dotted names of its indexers.
        length: Positions of the forward pass.
    """
    seen: dict[str, Indexed] = {}

    def watching(name: str, forward: Any) -> Any:
        def run(*args: Any, **given: Any) -> Any:
            with _Products() as products:
                output = forward(*args, **given)
            found = (_indexed(left, right, length) for left, right in products.factors)
            if (first := next(filter(None, found), None)) is not None:
                seen[name] = first
            return output

        return run

    with ExitStack() as stack:
        for name in names:
            module = model.get_submodule(name)
            stack.enter_context(running(module, watching(name, module.forward)))
        yield seen


class _Products(TorchFunctionMode):
    """Keeps the factors of every matrix product."""

    def __init__(self) -> None:
        super().__init__()
        self.factors: list[tuple[Any, Any]] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in PRODUCTS and len(args) > 1:
            self.factors.append(args[:2])
        return func(*args, **(kwargs or {}))


def _indexed(left: Any, right: Any, length: int) -> Indexed | None:
    """Factors (b, t, h, d) or (b, h, t, d) and (b, 1, d, t) as queries and keys; None for other products."""
    if left.ndim != 4 or right.ndim != 4 or right.shape[1] != 1 or right.shape[-1] != length:
        return None
    if length not in left.shape[1:3]:
        return None
    q = left.transpose(1, 2) if left.shape[1] == length else left
    return Indexed(q.detach().cpu(), right.transpose(-1, -2).detach().cpu())
