"""Biases that a spiking network can compute: Hamming distances of Gray codes."""

from dataclasses import dataclass

import torch
from torch import Tensor

from spectrope.core import require_least
from spectrope.encodings.base import Context, Encoding, EncodingConfig, Form, Tag


def gray_code(pos: Tensor, bits: int) -> Tensor:
    """The lowest bits (*s, bits) of the Gray code of positions, a fraction counting as its whole part."""
    whole = pos.floor().long() if pos.is_floating_point() else pos.long()
    code = whole ^ (whole >> 1)
    return (code[..., None] >> torch.arange(bits, device=pos.device)) & 1


class GrayCode(Encoding, name="gray"):
    r"""Adds a multiple of the number of bits in which the Gray codes of two positions agree:
    :math:`b_{ij} = a\,(B - |g(i) \oplus g(j)|)`.

    :math:`g(p) = p \oplus \lfloor p/2 \rfloor` on B bits. For positions below :math:`2^B` that are a power of
    two apart, the number of differing bits is constant: one for neighbours, two for all other powers. For
    other distances it depends on the positions, so this encoding is only partly relative. Codes repeat after
    :math:`2^{B+1}` positions.

    In the original method, the code is concatenated to binary queries and keys, which are compared bit by
    bit; this is the term that it adds to their products. Spiking neurons are not implemented: queries and
    keys are real here, and the amplitude is ours.

    References:
        Toward Relative Positional Encoding in Spiking Transformers (Lv et al., 2025), Gray-PE.
    """

    family = "relative bias"
    form = Form.DOT_PLUS_BIAS
    tags = frozenset({Tag.CONTENT_FREE})

    @dataclass(frozen=True, kw_only=True)
    class Config(EncodingConfig):
        """Bits of the code, and their weight."""

        bits: int = 12  # Codes repeat after 2 ** (bits + 1) positions.
        amplitude: float = 1.0  # Logit units per equal bit.

        def __post_init__(self) -> None:
            require_least(self, 1, "bits")

    def setup(self, config: "GrayCode.Config") -> None:
        self.bits, self.amplitude = config.bits, config.amplitude

    def bias(self, ctx: Context) -> Tensor:
        i, j = gray_code(ctx.q_pos, self.bits), gray_code(ctx.k_pos, self.bits)
        equal = (i[..., :, None, :] == j[..., None, :, :]).sum(-1)
        return (self.amplitude * equal)[:, None]
