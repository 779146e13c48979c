"""Fill that removes the rotation of one frequency band, except towards the first token."""

from torch import Tensor

from spectrope.encodings import SparesSink
from spectrope.lab.ablation.banded import BandFill
from spectrope.lab.ablation.fills.base import Site


class RemoveBandOffSink(BandFill, name="remove-band-off-sink"):
    """As `remove-band`, but logits of the first token stay as they are: `remove-band-off-sink@1of4`.

    Many heads attend to the first token when they have nothing to do. What `remove-band` costs and this does
    not, it costs by disturbing that attention sink.
    """

    change = "remove"

    def output(self, site: Site) -> Tensor:
        return site.attend_reference(site.ctx, SparesSink(self.encoding(site), site.encoding))
