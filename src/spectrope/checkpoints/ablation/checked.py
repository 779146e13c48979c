"""Whether a model that is run from cut to cut is the model itself."""

import torch
from jaxtyping import Float
from torch import Tensor

from spectrope.checkpoints.ablation.stages import CheckpointStages
from spectrope.checkpoints.ablation.subject import CheckpointSubject
from spectrope.checkpoints.sequences import Sequences
from spectrope.core import UnsupportedError

LEAST, UNITS = 1e-4, 8  # Relative difference of mean losses through rounding, at least and in units of dtype.


def check_intact(subject: CheckpointSubject, data: Sequences, losses: Float[Tensor, " b"]) -> None:
    """Refuse a model whose losses from stored states are not those of a plain forward pass.

    So it is where a block hands on more than its output, as where its residual is added outside.

    Args:
        subject: The model.
        data: Some sequences, on its device.
        losses: Mean loss of each, nothing changed, as computed from stored states.

    Raises:
        UnsupportedError: If mean losses differ beyond rounding.
    """
    plain = CheckpointStages(subject, data).scores(1)[0, :, 0]
    dtypes = {one.dtype for one in subject.model.parameters() if one.is_floating_point()}
    rounding = max(LEAST, *(UNITS * torch.finfo(one).eps for one in dtypes))
    apart = float((losses - plain.double().cpu()).abs().mean())
    if bool(plain.isfinite().all()) and not apart <= rounding * max(1.0, float(plain.mean())):
        raise UnsupportedError(
            f"{type(subject.model).__name__} cannot be run from module to module: the loss of the intact "
            f"model is {float(losses.mean()):.4g} then, and {float(plain.mean()):.4g} in one pass."
        )
