"""Run folders and rows on disk: the only package that reads or writes results."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
