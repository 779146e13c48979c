"""Fill that makes a head attend by positions only, without content."""

from dataclasses import replace

from torch import Tensor

from spectrope.lab.ablation.fills.base import Fill, Site, require_pairwise


class PositionOnly(Fill, name="position-only"):
    """The head's output with all queries and keys replaced by their means over a data set."""

    needs = frozenset({"means"})

    def output(self, site: Site) -> Tensor:
        require_pairwise(site, self)
        q, k = (mean[:, None] for mean in (site.means.queries, site.means.keys))
        q, k = q.to(site.ctx.q.dtype).expand_as(site.ctx.q), k.to(site.ctx.k.dtype).expand_as(site.ctx.k)
        return site.attend(replace(site.ctx, q=q, k=k), site.encoding)
