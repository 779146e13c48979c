"""Multi-head attention within groups of neighbours, which half of the heads shift by half a group."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool
from torch import Tensor

from spectrope.attention.heads import AttentionConfig, HeadSizes
from spectrope.attention.multi_head import MultiHead
from spectrope.core import require


class ShiftedWindows(MultiHead, name="shifted_windows"):
    r"""Each query sees the keys of its own group of tokens:
    :math:`\lfloor (i+s_h)/g \rfloor = \lfloor (j+s_h)/g \rfloor`.

    The shift :math:`s_h` is 0 in the first half of the heads and g/2 in the others, so that information
    crosses the borders of groups from layer to layer. LongLoRA shifts cyclically, which joins the two ends of
    the sequence in one group; here the first half-group is a group of its own, so that nothing is seen across
    the ends.

    References:
        LongLoRA (Chen et al., 2024), shifted sparse attention.
    """

    @dataclass(frozen=True, kw_only=True)
    class Config(AttentionConfig):  # pyright: ignore[reportIncompatibleVariableOverride]
        """Size of the groups; LongLoRA takes a quarter of the sequence, as the default does at `mini`."""

        group: int = 8  # Tokens.

        def __post_init__(self) -> None:
            require(self.group >= 2 and self.group % 2 == 0, self, "group", "even and at least 2")

    def __init__(self, config: "ShiftedWindows.Config", sizes: HeadSizes) -> None:
        super().__init__(MultiHead.Config(), sizes)
        self.group = config.group

    def visible(self, mask: Bool[Tensor, "..."] | None, n: int) -> Bool[Tensor, "b h n n"]:
        place = torch.arange(n, device=self.qkv.weight.device if mask is None else mask.device)
        shifted = torch.arange(self.n_heads, device=place.device) >= self.n_heads // 2
        groups = (place + (self.group // 2) * shifted[:, None]) // self.group
        same = (groups[:, :, None] == groups[:, None, :])[None]
        if mask is None:
            return same
        return (same & mask) | torch.eye(n, dtype=torch.bool, device=mask.device)  # Padding sees itself.
