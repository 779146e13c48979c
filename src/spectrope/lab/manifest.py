"""Fields of configurations and manifests of runs, in a module that does not import torch."""

from collections.abc import Mapping
from typing import Any

MARK = "laboratory"  # Field of a written experiment that names its laboratory; the decoder's has none.
DECODER = "decoder"
OWN = "own_encodings"  # Field with the digests of files that encodings come from, where any does.
OWN_TASKS = "own_tasks"  # The same of tasks.
ENCODING_FILES = "encoding_files"  # Field of the manifest with source, digest and laws of such encodings.
LEARNED = 0.1  # Of the way from guessing to the ceiling: with less, a model counts as near chance.


def has_diverged(manifest: Mapping[str, Any]) -> bool:
    """Whether the held-out loss of a finished run is not finite, which its manifest writes as null."""
    return "test_loss" in manifest and manifest["test_loss"] is None


def is_bound_to_guess(manifest: Mapping[str, Any]) -> bool:
    """Whether no model can do better than guessing, as in the controls of some tasks."""
    return manifest["bayes_accuracy"] <= manifest.get("chance_accuracy", 0.0)


def is_near_chance(manifest: Mapping[str, Any]) -> bool:
    """Whether the held-out accuracy of a finished run is close to that of guessing.

    Guessing means always answering the most frequent held-out label. A run is near chance if it has covered
    less than a tenth of the distance from there to the Bayes accuracy. Runs of earlier versions, whose
    manifests lack `chance_accuracy`, are never reported as near chance.
    """
    chance = manifest.get("chance_accuracy")
    if chance is None:
        return False
    return manifest["test_accuracy"] < chance + LEARNED * (manifest["bayes_accuracy"] - chance)
