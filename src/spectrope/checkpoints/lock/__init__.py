"""Locks: record the encodings that a checkpoint applies, and compare them with those that it applies
later."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
