"""Names of devices and precisions, in a module that does not import torch."""

from typing import Literal

Device = Literal["auto", "cpu", "cuda"]
Precision = Literal["auto", "float32", "bfloat16"]
