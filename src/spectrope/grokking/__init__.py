"""Grokking on operations modulo a prime and on images: tasks, models, training, measures, theory."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
