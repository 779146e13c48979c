"""How a model of the library chooses tokens where the checkpoint's own way is left aside."""

import contextlib
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

from torch import nn

KEPT = ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id")


@contextlib.contextmanager
def plain_generation(model: nn.Module) -> Iterator[None]:
    """Let `generate` decode greedily, whatever the checkpoint's `generation_config.json` asks for.

    Tokens keep their meanings, and so do fields that only some classes have.

    Args:
        model: One that has `generate`.
    """
    holder: Any = model
    own = getattr(holder, "generation_config", None)
    if own is None:
        yield
        return
    plain = deepcopy(own)
    for name, usual in vars(type(own)()).items():
        if name not in KEPT:
            setattr(plain, name, usual)
    holder.generation_config = plain
    try:
        yield
    finally:
        holder.generation_config = own
