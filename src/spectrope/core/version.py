"""Which version of the package is installed."""

from importlib.metadata import version

__version__ = version("spectrope")
