"""Tests that run files of a user's own leave no trace of them behind."""

from spectrope.core import foreign
from spectrope.encodings.base import ENCODINGS
from spectrope.figures import FIGURES
from spectrope.lab.ablation.fills.base import FILLS
from spectrope.lab.measures import MEASURES
from spectrope.lab.quantities import QUANTITIES
from spectrope.tasks.base import TASKS

REGISTRIES = (ENCODINGS, TASKS, FILLS, MEASURES, QUANTITIES, FIGURES)


def run_no_file_yet(monkeypatch):
    """As in a process that has run no file yet, until the test ends."""
    for registry in REGISTRIES:
        of_package = {name: registry[name] for name in registry if foreign.digest_of(registry[name]) is None}
        monkeypatch.setattr(registry, "_members", of_package)
    monkeypatch.setattr(foreign, "_loaded", {})
    monkeypatch.setattr(foreign, "_digests", {})
