"""torchtune: `RotaryPositionalEmbeddings` and, for Llama 3's scaling, `Llama3ScaledRoPE`."""

from functools import cache

from torch import Tensor
from torchtune.models.llama3_1 import Llama3ScaledRoPE
from torchtune.modules import RotaryPositionalEmbeddings

REQUIRES = (
    "torchtune",
    "torchao==0.13.0",
    "omegaconf",
    "antlr4-python3-runtime==4.9.3",
    "tiktoken",
    "blobfile",
    "sentencepiece",
    "datasets",
    "kagglehub",
    "pillow",
    "dill",
    "multiprocess",
    "xxhash",
    "pyarrow",
    "pandas",
    "lxml",
    "pycryptodomex",
)


@cache
def module(width: int, base: float, length: int, scaling: tuple):
    given = dict(scaling)
    if not given:
        return RotaryPositionalEmbeddings(width, length, base)
    return Llama3ScaledRoPE(
        width, length, base, given["factor"], given["low_freq_factor"], given["high_freq_factor"],
        given["original_max_position_embeddings"],
    )  # fmt: skip


def apply_rope(x: Tensor, positions: Tensor, base: float = 10000.0, scaling: dict | None = None) -> Tensor:
    if scaling and scaling["rope_type"] != "llama3":
        raise NotImplementedError("scaling")
    length = 1 << int(positions.max()).bit_length()
    rotary = module(x.shape[-1], base, length, tuple((scaling or {}).items()))
    return rotary(x.transpose(1, 2), input_pos=positions[None]).transpose(1, 2)
