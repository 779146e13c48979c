"""Sparse patterns of pairs that a configuration declares: bands with global tokens, and blocks."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from spectrope.checkpoints.adapters import Call
from spectrope.checkpoints.audit.bias import lags
from spectrope.checkpoints.audit.compare import Discrepancy
from spectrope.checkpoints.audit.encoding import Mask
from spectrope.checkpoints.audit.fields import Declaration

BANDED = frozenset({"led", "longformer"})
BLOCKED = frozenset({"big_bird", "bigbird_pegasus"})
COUNTS = 1e-2  # Error of the number of times that a key counts.


@dataclass(frozen=True)
class BandPattern:
    """Keys up to a distance on either side, and global tokens, which see all and are seen by all.

    Args:
        reach: The distance.
        at: Positions of the global tokens.
        seen: Whether others see them.
        seeing: Whether they see others.
    """

    reach: int
    at: tuple[int, ...] = ()
    seen: bool = True
    seeing: bool = True

    def counts(self, n: int, _: int) -> Float[Tensor, "n n"]:
        """How often each query sees each key."""
        allowed = lags(n, n).abs() <= self.reach
        if self.seen:
            allowed[:, self.at] = True
        if self.seeing:
            allowed[self.at, :] = True
        return allowed.double()

    def others(self) -> Iterator["BandPattern"]:
        """What could be mistaken for it."""
        for reach, seen, seeing in itertools.product((0, -1, 1), (True, False), (True, False)):
            yield replace(self, reach=self.reach + reach, seen=seen, seeing=seeing)
        yield from (replace(self, reach=reach) for reach in (self.reach // 2, 2 * self.reach))

    def __str__(self) -> str:
        whom = {(True, True): "see and are seen by all", (False, True): "see all, but are not seen beyond it"}
        words = whom.get((self.seen, self.seeing), "are seen by all, but do not see beyond it")
        words = words if self.seen or self.seeing else "neither see nor are seen beyond it"
        return f"bidirectional window {self.reach}" + (f", global tokens {words}" if self.at else "")


@dataclass(frozen=True)
class BlockPattern:
    """BigBird's blocks: the own one and its neighbours, the first, the last, and random ones.

    Queries of the first and the last block see all keys. Outside training, the library takes the first block
    in the place of every random one, whose keys count so many times more.

    Args:
        size: Positions of a block.
        random: Random blocks of a query.
        reach: Neighbours on either side.
        first: Whether all see the first block.
        last: Whether all see the last block.

    References:
        Big Bird (Zaheer et al., 2020), Sec. 2.
    """

    size: int
    random: int
    reach: int = 1
    first: bool = True
    last: bool = True

    def counts(self, n: int, padded: int) -> Float[Tensor, "n n"]:
        """How often each query sees each key, of a sequence that is filled up to whole blocks."""
        end = padded // self.size - 1
        block = torch.arange(n) // self.size
        i, j = block[:, None], block[None, :]
        seen = ((i - j).abs() <= self.reach).double()
        if self.first:
            seen[:, block == 0] = 1.0
        if self.last:
            seen[:, block == end] = 1.0
        seen[:, block == 0] += self.random
        seen[(block == 0) | (block == end)] = 1.0
        return seen

    def others(self) -> Iterator["BlockPattern"]:
        """What could be mistaken for it."""
        for first, last, reach in itertools.product((True, False), (True, False), (1, 0, 2)):
            for random in dict.fromkeys((self.random, 0, *range(2 * self.random + 1))):
                yield replace(self, first=first, last=last, reach=reach, random=random)
        yield from (replace(self, size=size) for size in (self.size // 2, 2 * self.size) if size)

    def __str__(self) -> str:
        ends = {(True, True): "first and last seen by all", (True, False): "first seen by all"}
        words = ends.get((self.first, self.last), "last seen by all" if self.last else "none seen by all")
        return f"blocks of {self.size}, {self.reach} on either side, {words}, {self.random} random"


Pattern = BandPattern | BlockPattern


def declared_pattern(declaration: Declaration, stack: str, layer: int, length: int) -> Pattern | None:
    """The sparse pattern that a layer has at a length; None where it has none.

    Args:
        declaration: The configuration.
        stack: "encoder", "decoder" or "".
        layer: Number of the layer in its stack.
        length: Tokens of the sequence.
    """
    family = declaration.model_type
    if stack == "decoder":
        return None
    if family in BANDED:
        windows = declaration.get("attention_window")
        return BandPattern((windows if isinstance(windows, int) else windows[layer]) // 2)
    if family in BLOCKED and declaration.get("attention_type") == "block_sparse":
        size, random = declaration.number("block_size"), declaration.number("num_random_blocks")
        return BlockPattern(size, random) if length > (5 + 2 * random) * size else None
    return None


def pattern_mask(pattern: Pattern) -> Mask:
    """The mask of a pattern without global tokens."""
    if isinstance(pattern, BandPattern):
        return Mask("bidirectional window", pattern.reach)
    return Mask("block-sparse", pattern.size)


def seen_counts(call: Call) -> Float[Tensor, "h n n"]:
    """How often each query sees each key, from the weights of equal logits."""
    once = call.allowed[0].double().cpu()
    return once if call.bias is None else once * call.bias[0].double().cpu().exp()


def pattern_findings(call: Call, declared: Pattern, what: str = "mask") -> Iterator[Discrepancy]:
    """Where a call sees other keys than declared, of all heads or of single ones.

    Args:
        call: Of sparse attention.
        declared: Its pattern.
        what: The respect in which findings differ.
    """
    assert call.sparse is not None
    n, padded = call.sparse.length, call.sparse.padded
    wanted, seen = declared.counts(n, padded), seen_counts(call)
    off = ((seen - wanted).abs() > COUNTS).flatten(1).any(1).nonzero().flatten().tolist()
    whole = len(off) == len(seen)
    for head in off[:1] if whole else off:
        words = _named(seen[head], declared, n, padded)
        about = what if whole else f"{what} in head {head}"
        yield Discrepancy(about, str(declared), words, head=None if whole else head)


def _named(seen: Float[Tensor, "n n"], declared: Pattern, n: int, padded: int) -> str:
    for other in declared.others():
        if bool(((seen - other.counts(n, padded)).abs() <= COUNTS).all()):
            return str(other)
    if isinstance(declared, BlockPattern):
        further = seen - replace(declared, random=0).counts(n, padded)
        if not _wrong_block(further, declared):
            return "random blocks drawn outside training, too"
    off = (seen - declared.counts(n, padded)).abs() > COUNTS
    query = int(off.any(1).nonzero()[0])
    wanted = int((declared.counts(n, padded)[query] > 0).sum())
    return f"others: query {query} sees {int((seen[query] > 0).sum())} keys, not {wanted}"


def random_findings(
    weights: Float[Tensor, "h n n"], declared: BlockPattern, padded: int
) -> Iterator[Discrepancy]:
    """Where queries see other random blocks in training than so many, each once, beside those that all see.

    Args:
        weights: That equal logits get in training.
        declared: Whose random blocks these are.
        padded: Tokens with those that fill the sequence up to whole blocks.
    """
    n = weights.shape[-1]
    counts = weights / weights.diagonal(dim1=-2, dim2=-1)[..., None]
    further = counts.double().cpu() - replace(declared, random=0).counts(n, padded)
    off = [(head, number) for head, extra in enumerate(further) for number in _wrong_block(extra, declared)]
    whole = len(off) == len(further)
    for head, number in off[:1] if whole else off:
        got = f"others in block {number} of queries"
        about = "mask in training" if whole else f"mask in training in head {head}"
        wanted = f"{declared.random} further blocks, once each"
        yield Discrepancy(about, wanted, got, head=None if whole else head)


def _wrong_block(extra: Float[Tensor, "n n"], declared: BlockPattern) -> list[int]:
    """The first block of queries, if any, with other random blocks than so many, each once."""
    blocks = [slice(start, start + declared.size) for start in range(0, len(extra), declared.size)]
    for number, rows in enumerate(blocks[1:-1], 1):
        parts = [extra[rows, columns] for columns in blocks]
        once = sum(bool(((part - 1).abs() <= COUNTS).all()) for part in parts)
        none = sum(bool((part.abs() <= COUNTS).all()) for part in parts)
        if once != declared.random or once + none < len(blocks):
            return [number]
    return []
