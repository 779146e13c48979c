"""How many tokens the serving modes take, and which windows do not end within them."""

import math
from collections.abc import Sequence

from torch import nn

from spectrope.checkpoints.adapters import trained_length
from spectrope.checkpoints.audit.far import SMALL, boundaries, switches_after
from spectrope.checkpoints.audit.fields import Declaration
from spectrope.checkpoints.audit.records import LayerRecord
from spectrope.core.peak import MIB

TOKENS = 68  # Decoding fills 64 keys, a usual block or page of kernels, and goes on.
STEPS = 8  # Of them are decoded, at most; half of these behind the end of a window.
KEPT = 64 * MIB  # Of logits in all layers, in double precision.


def served_tokens(
    model: nn.Module, declaration: Declaration, records: Sequence[LayerRecord], length: int
) -> int:
    """The number of tokens of a prompt and what is decoded after it.

    It is 68, or more where decoding then crosses the end of a declared window, as far as the logits of all
    layers fit into 64 MiB. It stays below the positions that the model takes, or without such a statement
    within the audited length, below the length at which a schedule switches, since a cache then holds keys of
    both sides, and within the length up to which masks do not depend on the content.

    Args:
        model: In evaluation mode.
        declaration: Its configuration.
        records: Of its layers.
        length: Positions of its audit, at which it ran.
    """
    heads = sum(len(one.heads) for one in records)
    most = max(SMALL, math.isqrt(KEPT // (8 * max(heads, 1))))
    crossing = [size + STEPS // 2 for size in boundaries(declaration, records)]
    wanted = max([min(TOKENS, most), *(size for size in crossing if size <= most)])
    trained, switch = trained_length(model), switches_after(declaration)
    kept = declaration.get("keep_window_size") or wanted  # Beyond which Doge's masks follow the content.
    most = length if trained is None else trained - 1
    return min(wanted, kept, most, wanted if switch is None else switch - 1)


def uncrossed(records: Sequence[LayerRecord], tokens: int) -> tuple[str, ...]:
    """Windows and chunks that do not end within so many tokens of serving modes, in words."""
    masks = (one.declared.mask for one in records)
    sizes = sorted({mask.size for mask in masks if mask and mask.size and mask.size >= tokens})
    return tuple(
        f"the end of a window or chunk of {size} tokens in serving modes, which have {tokens}"
        for size in sizes
    )
