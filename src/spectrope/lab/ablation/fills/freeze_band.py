"""Fill that freezes the rotation of one frequency band at the mean lag."""

from spectrope.lab.ablation.banded import BandFill


class FreezeBand(BandFill, name="freeze-band"):
    """The head's output with one frequency band held at the head's mean lag: `freeze-band@1of4`.

    The mean is over the tokens of a data set, weighted by the pattern of the intact head. Components of a
    bias become constants, which the softmax cancels, so freezing and removing are the same there.
    """

    change = "freeze"
    needs = frozenset({"lags"})
