"""Fill that removes the rotation of one frequency band."""

from spectrope.lab.ablation.banded import BandFill


class RemoveBand(BandFill, name="remove-band"):
    """The head's output without the positions in one frequency band: `remove-band@1of4`.

    In rotating pairs of the band all lags are 0; of a bias of the lag, its Fourier components are left out.
    """

    change = "remove"
