"""Spectra of attention logits."""

import torch

from spectrope.core import Watch, unwatched
from spectrope.lab.measures.base import Measure
from spectrope.lab.spectra.heads import spectrum
from spectrope.store import Run


class Spectrum(Measure, name="spectrum"):
    """Toeplitz shares, ranks, bands and kernels of every head."""

    def take(self, run: Run, device: torch.device, watch: Watch = unwatched) -> None:
        spectrum(run, device, watch=watch)
