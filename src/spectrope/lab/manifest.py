"""What the configuration and the manifest of a run say, read without loading torch."""

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


def is_near_chance(manifest: Mapping[str, Any]) -> bool:
    """Whether a finished run has hardly learned: its held-out accuracy lies just above that of guessing.

    Guessing means to answer the most frequent held-out label every time. A run counts as near chance with
    less than a tenth of the distance from there to the Bayes accuracy. Runs of earlier versions, whose
    manifests do not hold `chance_accuracy`, are not judged.
    """
    chance = manifest.get("chance_accuracy")
    if chance is None:
        return False
    return manifest["test_accuracy"] < chance + LEARNED * (manifest["bayes_accuracy"] - chance)
