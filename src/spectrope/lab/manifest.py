"""What the configuration and the manifest of a run say, read without loading torch."""

from collections.abc import Mapping
from typing import Any

MARK = "laboratory"  # Field of a written experiment that names its laboratory; the decoder's has none.
DECODER = "decoder"
OWN = "own_encodings"  # Field with the digests of files that encodings come from, where any does.
OWN_TASKS = "own_tasks"  # The same of tasks.


def has_diverged(manifest: Mapping[str, Any]) -> bool:
    """Whether the held-out loss of a finished run is not finite, which its manifest writes as null."""
    return "test_loss" in manifest and manifest["test_loss"] is None
