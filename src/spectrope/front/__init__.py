"""What `import spectrope as sp` offers: each question as one function, of runs and models alike."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
