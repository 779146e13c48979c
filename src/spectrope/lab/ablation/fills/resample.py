"""A head's output on another example."""

from torch import Tensor

from spectrope.lab.ablation.fills.base import Fill, Site


class Resample(Fill, name="resample"):
    """The head's output on another example, token by token."""

    needs = frozenset({"donors"})

    def output(self, site: Site) -> Tensor:
        return site.donors
