"""Fill that removes the rotation of one frequency band."""

from spectrope.lab.ablation.banded import BandFill


class RemoveBand(BandFill, name="remove-band"):
    """The head's output without the positions in one frequency band: `remove-band@1of4`.

    For rotary encodings, pairs of the band treat all lags as 0; for lag biases, the Fourier components are
    removed.
    """

    change = "remove"
