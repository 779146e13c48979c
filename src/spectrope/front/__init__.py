"""The public interface, `import spectrope as sp`: one function per question, for runs and models alike."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
