"""The measured positional encoding of each layer, as a transform that can be inverted."""

import torch
from torch import nn

from spectrope.checkpoints.adapters import evaluating
from spectrope.checkpoints.audit.bias import depends_on_content, row_centred, split_logits
from spectrope.checkpoints.audit.measure import unscaled
from spectrope.checkpoints.audit.rotary import Rotation, fit_rotation
from spectrope.checkpoints.probes.constant_content import LayerKernel, constant_content
from spectrope.checkpoints.probes.heads import Applied, Measured, MeasuredRotation, Unseen
from spectrope.core import UnsupportedError
from spectrope.encodings import NoPE


def applied_encodings(model: nn.Module, modules: list[str], length: int, seed: int = 0) -> dict[str, Applied]:
    """Measure the rotation, if any, of each layer's queries and keys with constant content.

    Args:
        model: A Hugging Face model.
        modules: Dotted names of its attention modules.
        length: Positions; the more, the closer frequencies are known.
        seed: Of the contents.

    Returns:
        By module; "unseen" where the model caps its logits, or where its code shows masked logits alone and
        there is a bias in them.
    """
    noise = float(torch.finfo(next(model.parameters()).dtype).eps)
    applied: dict[str, Applied] = {}

    def receive(kernel: LayerKernel) -> None:
        applied[kernel.call.module] = applied_by(kernel, noise)

    with evaluating(model):
        constant_content(model, modules, length, receive, seed=seed)
    return applied


def applied_by(kernel: LayerKernel, noise: float) -> Applied:
    """What one layer applies; under a cap, logits are no product that anything could be taken out of.

    Raises:
        UnsupportedError: If its logits have a relative term that depends on the content.
    """
    call = kernel.call
    scale, bias = split_logits(call)
    if depends_on_content(call, scale, noise):
        raise UnsupportedError(
            f"the logits of {call.module} have a relative term that depends on the content, so that the "
            "factor on products of queries and keys is not found here."
        )
    if call.softcap is not None:
        return Applied(Unseen(Unseen.Config()), scale)
    if call.logits is not None and bias is not None:
        centred = row_centred(bias, call.allowed[0]).abs().max()
        if bool(centred > 50 * noise * call.logits.masked_fill(~call.allowed, 0.0).abs().max()):
            return Applied(Unseen(Unseen.Config()), scale)
    q, _ = unscaled(call.q.double(), noise)
    rotation = fit_rotation(q, call.k.double(), kernel.sources, noise)
    return Applied(NoPE(NoPE.Config()) if rotation is None else as_encoding(rotation), scale)


def as_encoding(rotation: Rotation) -> MeasuredRotation:
    """A measured rotation as an encoding."""
    factor = 1.0 if rotation.gain is None else rotation.gain**0.5
    return MeasuredRotation(
        rotation.start, Measured(radians=rotation.frequencies, factor=factor), rotation.seen_pairing
    )
