"""Options of the commands that open a checkpoint."""

from dataclasses import dataclass
from typing import Annotated

import tyro
from torch import nn

from spectrope.models.adapters import open_model
from spectrope.models.adapters.load import Dtype

LengthOption = Annotated[
    int | None, tyro.conf.arg(help="Positions; None takes 512, or as many as the model takes.")
]


@dataclass(frozen=True, kw_only=True)
class Checkpoints:
    """What may be done to open a checkpoint; nothing beyond reading local safetensors unless asked."""

    dtype: Annotated[Dtype, tyro.conf.arg(help="To compute in; auto keeps the checkpoint's.")] = "auto"
    allow_download: Annotated[bool, tyro.conf.arg(help="Fetch the model from the hub.")] = False
    trust_remote_code: Annotated[bool, tyro.conf.arg(help="Run code that comes with it.")] = False
    allow_pickle: Annotated[bool, tyro.conf.arg(help="Unpickle weights, which can run code.")] = False

    def open(self, source: str) -> nn.Module:
        """The model of a checkpoint."""
        return open_model(
            source,
            allow_download=self.allow_download,
            trust_remote_code=self.trust_remote_code,
            allow_pickle=self.allow_pickle,
            dtype=self.dtype,
        )
