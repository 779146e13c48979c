"""A head's mean output."""

from torch import Tensor

from spectrope.lab.ablation.fills.base import Fill, Site


class Mean(Fill, name="mean"):
    """The head's mean output over the tokens of a data set."""

    needs = frozenset({"means"})

    def output(self, site: Site) -> Tensor:
        return site.means.outputs[:, None]
