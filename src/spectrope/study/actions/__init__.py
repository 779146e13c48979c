"""Actions of `spectrope claims`."""
