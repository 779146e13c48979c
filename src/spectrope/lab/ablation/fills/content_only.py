"""Fill that makes a head attend by content only, without positions."""

from dataclasses import replace

import torch
from torch import Tensor

from spectrope.encodings import Form, NoPE, Tag
from spectrope.lab.ablation.fills.base import Fill, Site, require_pairwise


class ContentOnly(Fill, name="content-only"):
    """The head's output with all lags 0.

    A bias that depends only on positions is then equal for all keys and cancels in the softmax.
    """

    def output(self, site: Site) -> Tensor:
        require_pairwise(site, self)
        here = torch.zeros_like(site.ctx.q_pos), torch.zeros_like(site.ctx.k_pos)
        if Tag.CONTENT_FREE not in site.encoding.tags or site.encoding.form is Form.GENERAL:
            return site.attend(replace(site.ctx, q_pos=here[0], k_pos=here[1]), site.encoding)
        q = site.encoding.rotate(site.encoding.scaled(site.ctx.q), here[0], "query")
        k = site.encoding.rotate(site.ctx.k, here[1], "key")
        return site.attend(replace(site.ctx, q=q, k=k), NoPE(NoPE.Config()))
