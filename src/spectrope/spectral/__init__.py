"""Toeplitz structure of attention logits: operators, spectra, contraction, decomposition, learning.

Tensors in, frozen records out; nothing here knows of models or encodings. Names that end in `_bound` are
proven, those that end in `_estimate` are not. Everything is computed in float64 (complex128) whatever comes
in. Each function has an executed example; what of the paper's theory they decide is in
docs/explanation/ledger.md.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
