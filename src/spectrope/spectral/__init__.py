"""Toeplitz structure of attention logits: operators, spectra, contraction, decomposition, learning.

Tensors in, frozen records out; nothing here knows of models or encodings. Names that end in `_bound` are
proven, those that end in `_estimate` are not. Everything is computed in float64 (complex128) whatever comes
in.
"""
