"""What every attention layer of a checkpoint works with on real content: logits and hidden states."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from spectrope.core.errors import UnsupportedError
from spectrope.encodings.base import Context, Encoding, Form
from spectrope.encodings.nope import NoPE
from spectrope.models.adapters import Call, before, evaluating, recorded, states_of
from spectrope.probes.heads import LayerHeads


class Unseen(Encoding):
    """An encoding of which nothing is known but masked logits, which nothing can be permuted in."""

    form = Form.GENERAL
    tags = frozenset()


@dataclass(frozen=True, eq=False)
class RecordedHeads(LayerHeads):
    """One layer's attention as its kernel received it, whatever encoding is in it.

    Args:
        received: Logits, bias included, with shape (b, h, t, t); zero above the diagonal of a causal layer
            where its code shows no more.
    """

    received: Float[Tensor, "b h t t"]

    @cached_property
    def logits(self) -> Float[Tensor, "b h t t"]:
        """Attention logits before the mask and before softmax."""
        return self.received


@torch.no_grad()
def capture_checkpoint(
    model: nn.Module, modules: list[str], ids: Int[Tensor, "b t"], sink: Callable[[RecordedHeads], None]
) -> None:
    """Run a checkpoint once and hand each layer's attention over as it runs; nothing is kept here.

    Args:
        model: A Hugging Face model.
        modules: Dotted names of its attention modules.
        ids: Tokens, without padding, on the model's device.
        sink: Receives the layers in the order in which they run, on the CPU.

    Raises:
        UnsupportedError: If the model has two stacks, or a layer sees neither all of the past alone nor
            everything.
    """
    if model.config.is_encoder_decoder:  # pyright: ignore[reportAttributeAccessIssue]
        raise UnsupportedError(f"{type(model).__name__} has two stacks; spectra are measured of one.")
    states: dict[str, Tensor] = {}
    config: Any = model.config

    def note(name: str, args: Any, given: dict[str, Any]) -> None:
        states[name] = states_of(args, given)

    def receive(call: Call) -> None:
        if call.module in states:
            layer = modules.index(call.module)
            sink(_heads(layer, call.cpu(), states.pop(call.module).cpu()))

    given = {"use_cache": False} if "use_cache" in config.to_dict() else {}
    with evaluating(model), before(model, modules, note), recorded(model, receive, attend=True):
        model(input_ids=ids, **given)


def _heads(layer: int, call: Call, x: Float[Tensor, "b t c"]) -> RecordedHeads:
    call = replace(call, q=call.q.float(), k=call.k.float())
    # What there is of position is in the logits already.
    if call.logits is not None:
        encoding, logits = Unseen(Unseen.Config()), call.logits.masked_fill(~call.allowed, 0.0)
    else:
        encoding, logits = NoPE(NoPE.Config()), call.products() * (call.scale or 1.0)
        logits = logits if call.bias is None else logits + call.bias
    groups = call.q.shape[1] // call.k.shape[1]
    pos = torch.arange(x.shape[1])[None]
    ctx = Context(call.q, call.k.repeat_interleave(groups, 1), pos, pos, x, x)
    return RecordedHeads(layer, encoding, _is_causal(call), ctx, logits)


def _is_causal(call: Call) -> bool:
    """Whether queries see the past alone, or everything."""
    allowed = call.allowed
    if bool(allowed.all()):
        return False
    if bool((allowed == torch.ones_like(allowed).tril()).all()):
        return True
    raise UnsupportedError(
        f"{call.module} sees neither all of the past nor everything; measure no more tokens than its window "
        "holds."
    )
