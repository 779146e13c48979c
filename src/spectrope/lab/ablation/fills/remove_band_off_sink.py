"""Fill that removes the rotation of one frequency band, except towards the first token."""

from torch import Tensor

from spectrope.encodings import SparesSink
from spectrope.lab.ablation.banded import BandFill
from spectrope.lab.ablation.fills.base import Site


class RemoveBandOffSink(BandFill, name="remove-band-off-sink"):
    """As `remove-band`, but logits of the first token stay as they are: `remove-band-off-sink@1of4`.

    Many heads attend to the first token when no other token is relevant. A cost of `remove-band` that this
    fill does not have is caused by disturbing this attention sink.
    """

    change = "remove"

    def output(self, site: Site) -> Tensor:
        return site.attend_reference(site.ctx, SparesSink(self.encoding(site), site.encoding))
