"""Forward passes of a checkpoint in pieces: state at a cut, continuation, and scoring."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from spectrope.checkpoints.adapters import in_parts, states_of


@dataclass(frozen=True)
class Before:
    """State of a forward pass before an attention module, which determines the rest of the pass.

    Args:
        x: What enters the module's block, with shape (b, t, c).
        memory: Outputs of the encoder, with shape (b, s, c), behind it; None in it, or where there is none.
        held: Heads of the block's earlier attention modules, as they were changed, with shape (b, t, f).
    """

    x: Float[Tensor, "b t c"]
    memory: Float[Tensor, "b s c"] | None = None
    held: tuple[Tensor, ...] = ()


def handing_on(parts: int, rest: tuple[Any, ...]) -> Callable[..., Any]:
    """A block's forward pass that returns its input."""
    return lambda *args, **given: in_parts(states_of(args, given), parts, rest)


def copied(x: Tensor, like: Tensor) -> Tensor:
    """As many copies of x as another tensor has rows for."""
    return x if len(x) == len(like) else x.repeat(len(like) // len(x), 1, 1)


def hit_and_loss(logits: Float[Tensor, "n classes"], targets: Tensor) -> tuple[Tensor, Tensor]:
    """Whether the target is likeliest, and the cross-entropy in nats; `logits` are used up.

    One class is likeliest, as in training here: of several with equal logits, the one that `argmax` names.
    """
    logits = logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits
    hit = logits.argmax(1) == targets
    largest = logits.amax(1)
    wanted = logits.gather(1, targets[:, None])[:, 0]
    total = logits.sub_(largest[:, None]).exp_().sum(1).log() + largest
    return hit.to(total), total - wanted
