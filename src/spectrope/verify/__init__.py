"""Check certificates with interval arithmetic, without torch.

Nothing here is shared with the code that wrote them.
`spectrope verify cert.json`, or `python -m spectrope.verify cert.json` where only python-flint and
lazy-loader are installed beside the package.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
