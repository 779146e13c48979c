"""Tables of spectra: of a run's heads, and of an encoding by itself."""
