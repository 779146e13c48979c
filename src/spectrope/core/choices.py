"""Names of devices and precisions, apart from torch, so that options can name them without loading it."""

from typing import Literal

Device = Literal["auto", "cpu", "cuda"]
Precision = Literal["auto", "float32", "bfloat16"]
