"""Toeplitz structure of attention logits: operators, spectra, contraction, decomposition, learning.

Functions take tensors and return frozen records; they do not depend on models or encodings. Quantities whose
names end in `_bound` are proven bounds, those that end in `_estimate` are estimates. All computations are in
float64 (complex128), whatever the type of the input. Each function has an executed example; how they relate
to the paper's theory is described in docs/explanation/ledger.md.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
