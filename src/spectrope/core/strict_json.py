"""JSON that every reader takes: it has no word for a number that is not finite."""

import json
import math
from collections.abc import Mapping
from typing import Any


def strict_json(value: Any, indent: int | None = None) -> str:
    """Write a value as JSON, with null for numbers that are not finite."""
    return json.dumps(finite(value), indent=indent, allow_nan=False)


def finite(value: Any) -> Any:
    """The value, with None in place of every number in it that is not finite."""
    if isinstance(value, Mapping):
        return {key: finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
