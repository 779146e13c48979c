"""Options of the commands that train models."""

from collections.abc import Sequence
from typing import Annotated, Any

import tyro

from spectrope.console.rare import RARE
from spectrope.core import ConfigError, Precision
from spectrope.encodings import read_value
from spectrope.lab import CONDITIONS, SCALES

ScaleOption = Annotated[str, tyro.conf.arg(help=f"Size of models and data: {', '.join(SCALES)}.")]
ConditionOption = Annotated[
    str,
    tyro.conf.arg(help=f"Whether the paper's confounds are kept: {', '.join(CONDITIONS)}."),
    RARE,
]
Epochs = Annotated[int | None, tyro.conf.arg(help="Passes over the training data (default: the scale's).")]
Examples = Annotated[
    int | None,
    tyro.conf.arg(help="Examples, of which 70 % train (default: the scale's)."),
]
Settings = Annotated[
    tuple[str, ...],
    tyro.conf.arg(
        name="set",
        metavar="FIELD=X ...",
        help="Fields of the experiment, such as learning_rate=0.001.",
    ),
]
PrecisionOption = Annotated[
    Precision,
    tyro.conf.arg(
        metavar="TYPE",
        help="Precision of matrix products: float32, bfloat16 or auto (fastest here).",
    ),
    RARE,
]

DropPositions = Annotated[
    float | None,
    tyro.conf.arg(
        metavar="SHARE",
        help="Drop all positions for this last share of the training steps, as in 0.2 (default: keep them).",
    ),
    RARE,
]


def changes_of(
    words: Sequence[str], precision: Precision = "auto", drop_positions: float | None = None
) -> dict[str, Any]:
    """Fields and values that `--set field=value` and other options name; values are JSON, or else text.

    Raises:
        ConfigError: If a word has no equals sign, or a field is given twice or is the seed.
    """
    for word in words:
        if "=" not in word:
            raise ConfigError(f"--set takes field=value, such as learning_rate=0.001; got {word!r}.")
    changes: dict[str, Any] = {}
    for field, _, value in (word.partition("=") for word in words):
        if field == "seed":
            raise ConfigError("--set changes all seeds to one; name seeds by the option for seeds.")
        if field in changes:
            raise ConfigError(f"--set gives {field} twice.")
        changes[field] = read_value(value)
    given = {"precision": None if precision == "auto" else precision, "drop_positions": drop_positions}
    return changes | {name: value for name, value in given.items() if value is not None}
