"""A pass of a checkpoint in pieces: what is known at a cut, what is handed on, and how the end is scored."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from spectrope.checkpoints.adapters import in_parts, states_of


@dataclass(frozen=True)
class Before:
    """What a pass knows before an attention module: all that it does from there on follows from it.

    Args:
        x: What enters the module's block, with shape (b, t, c).
        memory: What the encoder put out, with shape (b, s, c), behind it; None in it, or where there is none.
        held: Heads of the block's earlier attention modules, as they were changed, with shape (b, t, f).
    """

    x: Float[Tensor, "b t c"]
    memory: Float[Tensor, "b s c"] | None = None
    held: tuple[Tensor, ...] = ()


def handing_on(parts: int, rest: tuple[Any, ...]) -> Callable[..., Any]:
    """A block's forward pass that puts out what enters it."""
    return lambda *args, **given: in_parts(states_of(args, given), parts, rest)


def copied(x: Tensor, like: Tensor) -> Tensor:
    """As many copies of x as another tensor has rows for."""
    return x if len(x) == len(like) else x.repeat(len(like) // len(x), 1, 1)


def hit_and_loss(logits: Float[Tensor, "n classes"], targets: Tensor) -> tuple[Tensor, Tensor]:
    """Whether the target is likeliest, and the cross-entropy in nats; `logits` are used up."""
    logits = logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits
    largest = logits.amax(1)
    wanted = logits.gather(1, targets[:, None])[:, 0]
    total = logits.sub_(largest[:, None]).exp_().sum(1).log() + largest
    return (wanted == largest).to(total), total - wanted
