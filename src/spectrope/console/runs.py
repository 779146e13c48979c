"""What commands print of runs of the decoder."""

from collections.abc import Mapping
from typing import Any

from spectrope.console.terminal import complain
from spectrope.lab import has_diverged


def complain_of_divergence(label: str, manifest: Mapping[str, Any]) -> None:
    """Say on standard error of a run whose loss is no number that its accuracy says nothing."""
    if has_diverged(manifest):
        complain(f"{label} diverged: its held-out loss is not finite; a lower learning rate may help.")
