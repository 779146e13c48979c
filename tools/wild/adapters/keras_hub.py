"""keras-hub, on torch: `RotaryEmbedding`."""

import os

os.environ["KERAS_BACKEND"] = "torch"

import keras_hub
from torch import Tensor

REQUIRES = (
    "keras-hub",
    "keras",
    "h5py",
    "optree",
    "ml_dtypes",
    "namex",
    "absl-py",
    "kagglehub",
    "kagglesdk",
    "protobuf",
    "requests",
)


def apply_rope(x: Tensor, positions: Tensor, base: float = 10000.0, scaling: dict | None = None) -> Tensor:
    scaling = scaling or {"rope_type": "linear", "factor": 1.0}
    if scaling["rope_type"] != "linear":
        raise NotImplementedError("scaling")
    name = str(x.dtype).replace("torch.", "")
    rotary = keras_hub.layers.RotaryEmbedding(
        base, scaling["factor"], sequence_axis=2, feature_axis=-1, dtype=name
    )
    return rotary(x, positions=positions)
