"""Run folders and rows on disk: the only place that touches disk for results."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
