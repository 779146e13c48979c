"""Warnings that commands print about finished runs of the decoder."""

from collections.abc import Mapping
from typing import Any

from spectrope.console.terminal import complain
from spectrope.lab import has_diverged, is_near_chance


def warn_of_failure(label: str, manifest: Mapping[str, Any]) -> None:
    """Warn on standard error of a run that has diverged, or that has learned hardly more than to guess."""
    if has_diverged(manifest):
        complain(f"{label} diverged: its held-out loss is not finite; a lower learning rate may help.")
    elif is_near_chance(manifest):
        reached, chance = (100 * manifest[name] for name in ("test_accuracy", "chance_accuracy"))
        complain(
            f"{label} is near chance: {reached:.1f} % held out, {chance:.1f} % by guessing. Its heads tell "
            "nothing yet; train on more examples or for more epochs."
        )
