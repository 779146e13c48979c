"""Find the output projection of each attention module, and the columns of its heads, by moving one head at a
time."""

import contextlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from spectrope.checkpoints.adapters.call import Call
from spectrope.checkpoints.adapters.hooks import before, running
from spectrope.checkpoints.adapters.inputs import Inputs
from spectrope.checkpoints.adapters.record import recorded
from spectrope.checkpoints.adapters.sparse import sparse_modules
from spectrope.core import UnsupportedError

ROUNDING = 16.0  # Units in the last place of the largest value, up to which rows count as equal.


@dataclass(frozen=True)
class HeadProjection:
    """Where the heads of a module come out.

    Args:
        name: Dotted name of the linear map that takes them.
        n_heads: Query heads.
        width: Columns of each head; they lie side by side, from the first column on.
    """

    name: str
    n_heads: int
    width: int


def head_projections(model: nn.Module, modules: Collection[str], length: int) -> dict[str, HeadProjection]:
    """The output projection of attention modules: the first linear map whose input depends on their heads.

    Every row of a batch but the first has one head of each kernel moved. In the input of the projection only
    the columns of that head may move, but for a common factor per position, as of a norm over all heads. It
    is then given the first row alone, so that nothing that follows depends on the moved heads.

    Args:
        model: A Hugging Face model, in evaluation mode.
        modules: Dotted names of its attention modules.
        length: Tokens to run on.

    Raises:
        UnsupportedError: If a module attends several times in a pass, nothing linear takes its heads, or
            heads do not lie side by side in what takes them.
    """
    calls: list[Call] = []
    with recorded(model, calls.append):
        model(**Inputs(batch=1, length=length).of(model))
    counts = Counter(call.module for call in calls)
    if several := [module for module in modules if counts[module] > 1]:
        raise UnsupportedError(
            f"{several[0]} attends {counts[several[0]]} times in a pass, so no head of it can be changed."
        )
    rows = 1 + max((call.q.shape[1] for call in calls), default=0)
    search = _Search(model, rows)
    search.run(length)
    if lost := [module for module in modules if module not in search.found]:
        raise _lost(lost[0])
    return {module: search.found[module] for module in modules}


def _lost(module: str) -> UnsupportedError:
    return UnsupportedError(f"no linear map after the heads of {module} was found, so none can be cut.")


class _Search:
    """One pass on equal rows, in all of which but the first one head is moved.

    Args:
        model: The model.
        rows: One more than the most heads of a module.
    """

    def __init__(self, model: nn.Module, rows: int) -> None:
        self.model, self.rows = model, rows
        self.found: dict[str, HeadProjection] = {}
        self.waiting: Call | None = None  # for a linear map that takes its heads

    def run(self, length: int) -> None:
        """Fill `found`."""
        maps = [name for name, module in self.model.named_modules() if linear_weight(module) is not None]
        with (
            before(self.model, maps, self._enter),
            recorded(self.model, self._wait, attend=True, move=self._moved),
            self._sparse_moved(),
        ):
            self.model(**Inputs(batch=self.rows, length=length).of(self.model))

    def _wait(self, call: Call) -> None:
        if self.waiting is not None:
            raise _lost(self.waiting.module)
        self.waiting = call

    def _moved(self, heads: Float[Tensor, "b h i e"]) -> Float[Tensor, "b h i e"]:
        """Head h of row h + 1 moved, by no less than any head has."""
        moved = heads.clone()
        head = torch.arange(heads.shape[1], device=heads.device)
        moved[head + 1, head] += 1 + heads.abs().max()
        return moved

    @contextlib.contextmanager
    def _sparse_moved(self) -> Iterator[None]:
        """Modules of sparse attention whose outputs, the heads side by side, are moved."""
        with contextlib.ExitStack() as stack:
            for name in sparse_modules(self.model):
                module = self.model.get_submodule(name)
                stack.enter_context(running(module, self._sparse(module.forward)))
            yield

    def _sparse(self, forward: Callable[..., Any]) -> Callable[..., Any]:
        def move(*args: Any, **given: Any) -> Any:
            output = forward(*args, **given)
            if self.waiting is None:
                return output
            whole = output[0] if isinstance(output, tuple) else output
            heads = whole.unflatten(-1, (self.waiting.q.shape[1], -1)).transpose(1, 2)
            moved = self._moved(heads).transpose(1, 2).flatten(2)
            return (moved, *output[1:]) if isinstance(output, tuple) else moved

        return move

    def _enter(self, name: str, args: Any, given: Any) -> Any:
        by_row = self._by_row(args[0]) if self.waiting is not None and args else None
        if by_row is None or _rows_alike(by_row):
            return None
        call, self.waiting = self.waiting, None
        assert call is not None
        self.found[call.module] = _columns(name, call, by_row)
        batch = args[0].shape.index(self.rows) if self.rows in args[0].shape[:2] else None
        if batch is None:
            first = by_row[:1].expand_as(by_row).reshape(args[0].shape)
        else:
            first = args[0].narrow(batch, 0, 1).expand_as(args[0])
        return (first.contiguous(), *args[1:]), given

    def _by_row(self, x: Any) -> Float[Tensor, "rows n f"] | None:
        """An input of a linear map with the batch first; None if it is no vector per row and position."""
        if not isinstance(x, Tensor) or x.ndim < 2 or x[..., 0].numel() % self.rows:
            return None
        if x.ndim > 2 and x.shape[0] != self.rows and x.shape[1] == self.rows:
            x = x.transpose(0, 1)
        return x.reshape(self.rows, -1, x.shape[-1])


def linear_weight(module: nn.Module) -> Float[Tensor, "out in"] | None:
    """The weight of a linear map, as `nn.Linear` keeps it; None for other modules."""
    weight = getattr(module, "weight", None)
    if isinstance(module, nn.Linear):
        return weight
    transposed = type(module).__name__ == "Conv1D" and hasattr(module, "nf")
    return weight.T if transposed and isinstance(weight, Tensor) else None


def _columns(name: str, call: Call, rows: Float[Tensor, "rows n f"]) -> HeadProjection:
    """The projection of a call's heads, whose width is a share of its columns, or that of values.

    ConvBERT puts the heads of a convolution beside those of attention.
    """
    n_heads = call.q.shape[1]
    shares = [rows.shape[-1] // n_heads] if rows.shape[-1] % n_heads == 0 else []
    values = [] if call.v is None else [call.v.shape[-1]]
    for width in dict.fromkeys(shares + values):
        if n_heads * width <= rows.shape[-1] and _side_by_side(rows[: n_heads + 1], width):
            return HeadProjection(name, n_heads, width)
    raise UnsupportedError(
        f"the heads of {call.module} do not enter {name} side by side, the first linear map that depends "
        "on them, so none can be cut."
    )


def _side_by_side(rows: Float[Tensor, "rows n f"], width: int) -> bool:
    """Whether a moved head moves its own columns alone, but for a factor of all others at a position."""
    intact, moved = rows[0].double(), rows[1:].double()
    heads = torch.arange(len(moved), device=rows.device)[:, None]
    outside = (torch.arange(rows.shape[-1], device=rows.device) // width != heads)[:, None]
    size = (intact.square() * outside).sum(-1, keepdim=True)
    factor = (moved * intact * outside).sum(-1, keepdim=True) / size
    factor = torch.where(size > 0, factor, torch.ones_like(factor))
    apart = ((moved - factor * intact) * outside).abs().max()
    return float(apart) <= _rounding(rows)


def _rows_alike(rows: Float[Tensor, "rows n f"]) -> bool:
    return float((rows - rows[:1]).abs().max()) <= _rounding(rows)


def _rounding(rows: Float[Tensor, "rows n f"]) -> float:
    return ROUNDING * torch.finfo(rows.dtype).eps * float(rows[0].abs().max())
