"""What the manifest of a training run says, read without loading its model."""

from collections.abc import Mapping
from typing import Any


def has_diverged(manifest: Mapping[str, Any]) -> bool:
    """Whether the held-out loss of a finished run is not finite, which its manifest writes as null."""
    return "test_loss" in manifest and manifest["test_loss"] is None
