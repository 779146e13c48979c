"""Positions of queries and keys where layers pool their sequence, as Funnel's do."""

import re
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from spectrope.checkpoints.adapters import POOLS, layer_name
from spectrope.checkpoints.audit.fields import Declaration
from spectrope.checkpoints.probes.constant_content import LayerKernel


@dataclass(frozen=True, eq=False)
class Places:
    """Where the queries and keys of one layer stand, in positions of tokens.

    Args:
        queries: Of the queries; that of the first token of those that were pooled.
        keys: Of the keys.
        apart: Whether the first query and the first key, of the token <cls>, have no relative position.
    """

    queries: Int[Tensor, " i"]
    keys: Int[Tensor, " j"]
    apart: bool

    @property
    def lag(self) -> Int[Tensor, "i j"]:
        """Position of the query less that of the key."""
        return self.queries[:, None] - self.keys[None, :]

    @property
    def related(self) -> Bool[Tensor, "i j"]:
        """Pairs that have a relative position."""
        pairs = torch.ones_like(self.lag, dtype=torch.bool)
        if self.apart:
            pairs[0], pairs[:, 0] = False, False
        return pairs

    @property
    def unit(self) -> int:
        """Positions from one key to the next."""
        return int(self.keys[-1] - self.keys[-2])

    def matched(self) -> tuple[slice, Int[Tensor, " i"]]:
        """Queries that have a relative position, and the keys that stand where these do."""
        rows = slice(int(self.apart), None)
        places = self.queries[rows]
        first = torch.searchsorted(self.keys[rows].contiguous(), places.contiguous())
        return rows, first + int(self.apart)

    def square(self, kernel: LayerKernel) -> LayerKernel:
        """The kernel of queries, and of the keys that stand at the same positions."""
        rows, columns = self.matched()
        call = kernel.call
        assert call.logits is not None
        cut = replace(
            call,
            q=call.q[:, :, rows],
            k=call.k[:, :, columns],
            v=None if call.v is None else call.v[:, :, columns],
            allowed=call.allowed[:, :, rows][..., columns],
            logits=call.logits[:, :, rows][..., columns],
            pattern=None,
        )
        return replace(kernel, call=cut)


def places_of(declaration: Declaration, module: str, length: int) -> Places | None:
    r"""Where a layer's queries and keys stand; None for architectures that do not pool.

    Between blocks, Funnel keeps every second position: :math:`p_0, p_2, \dots`, or, where <cls> is kept
    apart, :math:`p_0, p_1, p_3, \dots`, without the last token if it truncates. In the first layer of a block
    queries are pooled before keys if it pools queries alone.

    Args:
        declaration: The configuration.
        module: Dotted name of the attention module.
        length: Tokens of the sequence.

    References:
        Funnel-Transformer (Dai et al., 2020), Sec. 2.1 and Appendix A.2.1.
    """
    if declaration.model_type not in POOLS:
        return None
    apart, truncates = bool(declaration.get("separate_cls")), bool(declaration.get("truncate_seq"))
    block, layer = _block(module)
    keys = queries = torch.arange(length)
    for _ in range(block):
        keys = queries
        if len(queries) > 1 + apart:
            rest = queries[1:-1] if truncates else queries[1:]
            queries = torch.cat([queries[:1], rest[::2]]) if apart else queries[::2]
    if layer > 0 or not declaration.get("pool_q_only"):
        keys = queries
    return Places(queries, keys, apart)


def place_of(declaration: Declaration, module: str) -> tuple[str, int]:
    """Stack and number of a layer, counted through all blocks of the stack."""
    stack, number = layer_name(module)
    if declaration.model_type not in POOLS or stack == "decoder":
        return stack, number
    block, layer = _block(module)
    return stack, sum(declaration.get("block_sizes")[:block]) + layer


def _block(module: str) -> tuple[int, int]:
    """Number of a block, and that of a layer in it; 0 where layers are in no blocks."""
    found = re.search(r"blocks\.(\d+)\.(\d+)", module)
    return (int(found.group(1)), int(found.group(2))) if found else (0, 0)
