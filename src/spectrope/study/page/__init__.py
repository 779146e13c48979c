"""The page of a study: verdicts, figures with the paper's numbers, and a list of missing runs."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
