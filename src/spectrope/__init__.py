"""A spectroscope for positional encodings in Transformers.

The names in `__all__` are the library's front door; each is imported when it is first used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
