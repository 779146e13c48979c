"""Zero a head's rows of the value weights but not its bias, a possible mistake of ablation by weights."""

from torch import Tensor

from spectrope.encodings import Form
from spectrope.lab import Fill, Site


class ValueBias(Fill, name="value-bias"):
    """Output of a head whose rows of the value weights are zeroed.

    Rows of a pattern sum to 1, so a mean of values that are all equal to their bias is that bias.
    """

    def output(self, site: Site) -> Tensor:
        bias = site.heads.value_bias()
        if site.encoding.form is not Form.GENERAL:
            return bias
        return site.attend(site.ctx, site.encoding, bias.to(site.v.dtype).expand_as(site.v))
