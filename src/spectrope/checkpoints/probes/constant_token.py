"""Probe with one token at every position: any remaining variation of the embeddings is the absolute term."""

import contextlib
import itertools
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from spectrope.checkpoints.adapters import (
    Enough,
    Inputs,
    after,
    before,
    block_of,
    is_sound_encoder,
    recorded,
    states_of,
)
from spectrope.checkpoints.probes.constant_content import batch_first

EDGES, SHIFTS = 2, (0, 1, 2)  # Positions at each end that convolutions change, and where a table may begin.
VANISHING = 1e-2  # Least factor on rows of a table that counts as one.
ALIKE = 1e-3  # Share of the largest state by which those of a constant sound may differ.
ALIGNED, EVEN = 1 - 2e-3, 2e-2  # Least cosine with a row and largest spread of factors; float8 keeps within.


@dataclass(frozen=True, eq=False)
class Absolute:
    """The absolute term that enters one stack of layers.

    Args:
        block: Dotted name of the stack's first block.
        states: What enters it when one token stands at every position, with shape (t, c).
        table: Dotted name of the embedding whose rows are looked up by position, or "".
        rows: Row of that table per position, with shape (t,), as `RowLookup` has them; empty without a table.
        looked_up: What the table gave, with shape (n, w); None without one.
        factor: What the rows were multiplied by.
        off: Largest departure from the rows times the factor, over the largest number in these.
    """

    block: str
    states: Float[Tensor, "t c"]
    table: str
    rows: Int[Tensor, " rows"]
    looked_up: Float[Tensor, "n w"] | None = None
    factor: float = 1.0
    off: float = 0.0

    @property
    def variation(self) -> float:
        """Share of the states' energy that varies over positions."""
        x = self.states.double()
        return ((x - x.mean(0)).square().sum() / x.square().sum()).item()

    @property
    def term(self) -> Float[Tensor, "n w"]:
        """What varies over positions: the table's vectors, or else the states, less their mean."""
        x = (self.states if self.looked_up is None else self.looked_up).double().cpu()
        return x - x.mean(0)


@dataclass(frozen=True, eq=False)
class RowLookup:
    """Which rows of a table vectors are.

    Args:
        rows: That which each vector equals, or else, if all vectors are rows but for one factor and rounding,
            the nearest; -1 where there is none.
        factor: On the rows, if all vectors share one.
        off: Largest departure from the rows times the factor, over the largest number in these.
    """

    rows: Int[Tensor, " t"]
    factor: float = 1.0
    off: float = 0.0


@torch.no_grad()
def constant_token(
    model: nn.Module, modules: list[str], length: int, mask: Tensor | None = None
) -> list[Absolute]:
    """The absolute term of each stack of layers.

    Args:
        model: A Hugging Face model, in evaluation mode.
        modules: Dotted names of its attention modules.
        length: Positions.
        mask: 1 at tokens and 0 at padding, with shape (1, length); None for no padding.
    """
    entries = _entries(model, modules)
    tables = [name for name, module in model.named_modules() if table_of(name, module) is not None]
    entered: dict[str, Tensor] = {}
    lookups: dict[str, RowLookup] = {}
    values: dict[str, Tensor] = {}

    def enter(name: str, args: Any, given: dict[str, Any]) -> None:
        states = states_of(args, given)
        states = states.flatten(2) if states.ndim > 3 else states
        entered.setdefault(entries[name], states.permute(batch_first(states, 1, length))[0, :length])
        if len(entered) == len(set(entries.values())):
            raise Enough

    def look_up(name: str, output: Any) -> None:
        given = looked_up(output)
        one = given.ndim == 2 or len(given) == 1
        vectors = (given[..., :length, :] if one else given).flatten(0, -2)  # Some fill the sequence up.
        if bool((vectors != vectors[:1]).any()):
            values.setdefault(name, vectors)
            table = table_of(name, model.get_submodule(name))
            assert table is not None
            lookups.setdefault(name, lookup(table, vectors))

    with (
        before(model, entries, enter),
        after(model, tables, look_up),
        recorded(model, lambda _: None),
        contextlib.suppress(Enough),
    ):
        model(**Inputs(batch=1, length=length).of(model, mask))
    whole = {name: one for name, one in lookups.items() if len(one.rows) == length}
    if is_sound_encoder(model):
        (states,) = entered.values()
        whole = {name: one for name in tables if (one := _added_rows(model, name, states)) is not None}
        values |= {
            name: one.factor * _weight(model, name)[one.rows.clamp(0, length - 1)]
            for name, one in whole.items()
        }
    blocks = dict.fromkeys(entries.values())
    if is_sound_encoder(model):
        cut = EDGES if whole else length // 4  # Where nothing is added, the middle tells it.
        entered = {block: states[cut:-cut] for block, states in entered.items()}
    return [_absolute(block, entered[block], whole, values) for block in blocks]


def _weight(model: nn.Module, name: str) -> Tensor:
    table: Any = model.get_submodule(name)
    return table.weight


def _added_rows(model: nn.Module, name: str, states: Float[Tensor, "t c"]) -> RowLookup | None:
    """Rows of a table that are added to a constant sound, looked up or not; None if they are not.

    Convolutions see both ends of a sound, so these are not compared.
    """
    table = _weight(model, name)
    if table.shape != states.shape:
        return None
    places, rounding = torch.arange(len(states), device=states.device), torch.finfo(states.dtype).eps
    inside, within = states[EDGES:-EDGES].double(), max(ALIKE, 4 * rounding) * states.abs().max()
    for way in (*(places + by for by in SHIFTS), places.flip(0)):
        rows = table[way.clamp(0, len(table) - 1)][EDGES:-EDGES].double()
        steps, moves = rows.diff(dim=0), inside.diff(dim=0)
        factor = float((steps * moves).sum() / steps.square().sum().clamp(min=1e-300))
        rest = inside - factor * rows
        if abs(factor) > VANISHING and bool((rest - rest[:1]).abs().max() <= within):
            near = abs(factor - 1) <= max(ALIKE, 4 * rounding)
            return RowLookup(way, 1.0 if near else factor)
    return None


def _entries(model: nn.Module, modules: list[str]) -> dict[str, str]:
    """Modules whose input is what enters a stack, and the stack's first block.

    That is the block itself, whether it attends or not, or, where its code is called without it, what attends
    first in it.
    """
    entries: dict[str, str] = {}
    for stack in dict.fromkeys(block_of(module).rpartition(".")[0] for module in modules):
        inside = [module for module in modules if block_of(module).rpartition(".")[0] == stack]
        blocks = model.get_submodule(stack)
        known = isinstance(blocks, nn.ModuleList)
        block = f"{stack}.{next(iter(blocks._modules))}" if known else block_of(inside[0])
        entries |= {block: block} | {m: block for m in inside[:1] if block_of(m) == block}
    return entries


def blocks_without(model: nn.Module, modules: list[str]) -> tuple[str, ...]:
    """Dotted names of the blocks beside those that attend, in the stacks of these modules."""
    attending = dict.fromkeys(map(block_of, modules))
    stacks = dict.fromkeys(block.rpartition(".")[0] for block in attending)
    held = {stack: model.get_submodule(stack) for stack in stacks}
    names = (
        f"{stack}.{number}"
        for stack, blocks in held.items()
        if isinstance(blocks, nn.ModuleList)
        for number in blocks._modules
    )
    return tuple(name for name in names if name not in attending)


def table_of(name: str, module: nn.Module) -> Tensor | None:
    """The rows that a module looks up: those of an embedding, or computed ones of positions."""
    if isinstance(module, nn.Embedding):
        return module.weight
    weights = getattr(module, "weights", None)
    return weights if "position" in name.rpartition(".")[2] and isinstance(weights, Tensor) else None


def _absolute(
    block: str,
    states: Float[Tensor, "t c"],
    lookups: dict[str, RowLookup],
    values: dict[str, Tensor],
) -> Absolute:
    """With the table that lies nearest to the block, as stacks may have one each."""

    def shared(name: str) -> int:
        both = zip(name.split("."), block.split("."), strict=False)
        return sum(1 for _ in itertools.takewhile(lambda parts: parts[0] == parts[1], both))

    table = max(lookups, key=shared, default="")
    one = lookups.get(table, RowLookup(torch.empty(0, dtype=torch.long)))
    return Absolute(block, states, table, one.rows, values.get(table), one.factor, one.off)


def lookup(table: Float[Tensor, "rows c"], vectors: Float[Tensor, "t c"]) -> RowLookup:
    """The rows of a table that vectors are, as they stand, multiplied or rounded."""
    first = int(matching_rows(table, vectors[:1]))
    successive = table[first : first + len(vectors)] if first >= 0 else table[:0]
    if torch.equal(successive, vectors):  # The usual case, without distances of all pairs.
        return RowLookup(torch.arange(first, first + len(vectors), device=vectors.device))
    rows = matching_rows(table, vectors)
    if bool((rows >= 0).all()):
        return RowLookup(rows)
    sizes = [x.double().norm(dim=-1).clamp(min=1e-300) for x in (table, vectors)]
    units, directions = (x.double() / size[:, None] for x, size in zip((table, vectors), sizes, strict=True))
    cosines, nearest = (directions @ units.T).max(-1)
    nearest, cosines = (
        torch.where(rows >= 0, exact, other)
        for exact, other in ((rows, nearest), (torch.ones_like(cosines), cosines))
    )
    factors = torch.where(rows >= 0, 1.0, sizes[1] / sizes[0][nearest])
    alike = bool((cosines > ALIGNED).all()) and bool((factors / factors[0] - 1).abs().max() < EVEN)
    if not alike:
        return RowLookup(rows)
    start = int(nearest[0])
    if torch.equal(table[start : start + len(nearest)], table[nearest]):  # Some rows may be equal.
        nearest = torch.arange(start, start + len(nearest), device=nearest.device)
    factor, meant = factors.median().item(), table[nearest].double()
    factor = 1.0 if bool((rows >= 0).any()) else factor
    off = (vectors.double() - factor * meant).abs().max() / (factor * meant).abs().max()
    return RowLookup(nearest, factor, off.item())


def looked_up(output: Any) -> Float[Tensor, "*b t c"]:
    """Rows that a table put out, alone or, as ProphetNet's, with their numbers."""
    return output[0] if isinstance(output, tuple) else output


def matching_rows(table: Float[Tensor, "rows c"], vectors: Float[Tensor, "t c"]) -> Int[Tensor, " t"]:
    """Row of the table that equals each vector, or -1."""
    distances = torch.cdist(vectors.float(), table.float(), compute_mode="donot_use_mm_for_euclid_dist")
    nearest, rows = distances.min(-1)
    return rows.where(nearest == 0, -1)
