"""Tables of spectra, for the heads of a run and for an encoding itself."""
