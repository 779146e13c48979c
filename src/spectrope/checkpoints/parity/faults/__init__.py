"""The faults of the catalogue that can be simulated on a local copy, one module per part of attention."""

from collections.abc import Iterator

from spectrope.checkpoints.parity.faults.absolute import absolute_faults
from spectrope.checkpoints.parity.faults.base import Simulation
from spectrope.checkpoints.parity.faults.heads import head_faults
from spectrope.checkpoints.parity.faults.logits import logit_faults
from spectrope.checkpoints.parity.faults.masks import mask_faults
from spectrope.checkpoints.parity.faults.norms import norm_faults
from spectrope.checkpoints.parity.faults.positions import position_faults
from spectrope.checkpoints.parity.faults.rotation import rotation_faults
from spectrope.checkpoints.parity.sites import LocalCopy


def simulations(copy: LocalCopy, length: int) -> Iterator[Simulation]:
    """All that can be simulated on a model.

    Args:
        copy: The model, with the rotations of its layers.
        length: Tokens of a prompt, beyond which windows and tables make no difference.
    """
    yield from rotation_faults(copy)
    yield from position_faults(copy, length)
    yield from mask_faults(length)
    yield from logit_faults(copy)
    yield from head_faults(copy)
    yield from norm_faults(copy)
    yield from absolute_faults(copy)
