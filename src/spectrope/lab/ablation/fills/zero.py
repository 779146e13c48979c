"""Zero ablation."""

from torch import Tensor

from spectrope.lab.ablation.fills.base import Fill, Site


class Zero(Fill, name="zero"):
    """Zeros."""

    def output(self, site: Site) -> Tensor:
        return site.outputs.new_zeros(())
