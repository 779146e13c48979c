"""Compare two runtimes of one model: where their predictions differ, and which fault explains the
difference."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
