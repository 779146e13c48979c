"""Fill that removes the rotation of all frequency bands but one."""

from spectrope.lab.ablation.banded import BandFill


class KeepBand(BandFill, name="keep-band"):
    """The head's output with positions in one frequency band only: `keep-band@1of4`."""

    change = "keep"
