"""Spectra of attention logits."""

import torch

from spectrope.lab.events import Listener, silent
from spectrope.lab.measures.base import Measure
from spectrope.lab.spectra.heads import spectrum
from spectrope.store import Run


class Spectrum(Measure, name="spectrum"):
    """Toeplitz shares, ranks, bands and kernels of every head."""

    def take(self, run: Run, device: torch.device, listen: Listener = silent) -> None:
        spectrum(run, device, listen=listen)
