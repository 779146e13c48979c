"""Types and ranges of the fields of a manifest, checked when it is read."""

from collections.abc import Callable, Mapping
from pathlib import Path
from reprlib import repr as short
from typing import Any

from spectrope.core import StoreError

MOST = 1e12  # Of what is counted or timed: seconds, parameters, MiB.
LARGEST = 1e300  # Of losses.


def _between(low: float, high: float) -> tuple[str, Callable[[object], bool]]:
    def fits(value: object) -> bool:
        return isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high

    return f"a number between {low:g} and {high:g}", fits


FACTS: Mapping[str, tuple[str, Callable[[object], bool]]] = {
    **dict.fromkeys(
        (
            "bayes_accuracy",
            "chance_accuracy",
            "train_accuracy",
            "test_accuracy",
            "held_out_accuracy",
        ),
        _between(0.0, 1.0),
    ),
    **dict.fromkeys(("train_loss", "test_loss", "held_out_loss"), _between(-LARGEST, LARGEST)),
    **dict.fromkeys(
        ("seconds", "cpu_seconds", "n_parameters", "peak_memory_mib", "memory_before_mib", "steps"),
        _between(0.0, MOST),
    ),
    **dict.fromkeys(
        ("finished_at", "commit", "device", "precision"), ("text", lambda value: isinstance(value, str))
    ),
    "machine": ("a description of the machine", lambda value: isinstance(value, Mapping)),
}


def require_facts(path: Path, manifest: Mapping[str, Any]) -> None:
    """Raise an error if a field of a manifest has another type or is out of range; null means that it is
    missing.

    Raises:
        StoreError: Naming the first such fact.
    """
    for name, (rule, fits) in FACTS.items():
        value = manifest.get(name)
        if value is not None and not fits(value):
            raise StoreError(
                f"{path} is damaged: {name} is {short(value)}, and has to be {rule}; move its folder away "
                "and run it again."
            )
