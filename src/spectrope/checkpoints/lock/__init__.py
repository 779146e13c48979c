"""Locks: what a checkpoint applies, kept in a file beside it, and compared with what it applies later."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
