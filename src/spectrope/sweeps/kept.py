"""What a row keeps of a run: facts of its manifest and columns of its tables, with the values they take."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import polars as pl

from spectrope.core.errors import StoreError
from spectrope.sweeps.measures import MEASURES

LARGEST = 1e60  # Of numbers, so that sums of their squares stay finite.


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and not abs(value) > LARGEST


def _is_share(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1


def _is_text(value: object) -> bool:
    return isinstance(value, str)


FACTS: Mapping[str, tuple[str, Callable[[object], bool]]] = {
    **dict.fromkeys(("finished_at", "commit", "device", "precision"), ("text", _is_text)),
    **dict.fromkeys(("seconds", "test_loss", "n_parameters"), (f"a number within ±{LARGEST:g}", _is_number)),
    **dict.fromkeys(
        ("bayes_accuracy", "train_accuracy", "test_accuracy"), ("a number between 0 and 1", _is_share)
    ),
    "machine": ("a description of the machine", lambda value: isinstance(value, dict)),
}
WIDE = {pl.Int128, pl.UInt128}  # NumPy has none of these.
WHOLE = ("whole numbers", lambda kind: kind.is_integer() and kind not in WIDE)
KINDS: Mapping[str, tuple[str, Callable[[pl.DataType], bool]]] = {
    **dict.fromkeys(("epoch", "step", "layer", "head"), WHOLE),
    "split": ("text", lambda kind: kind == pl.String),
    "deposit": ("true or false", lambda kind: kind == pl.Boolean),
}  # Of columns; the others hold numbers.
FULL = ("epoch", "step", "split", "layer", "head", "gap", "deposit", "factor", "accuracy")  # Without nulls.
NUMBERS = ("numbers", lambda kind: kind.is_float() or kind == pl.Null or WHOLE[1](kind))
LIMITS: Mapping[str, tuple[float, float]] = {
    **dict.fromkeys(("accuracy", "train_accuracy", "test_accuracy", "held_out_accuracy"), (0.0, 1.0)),
    **dict.fromkeys(("gap", "drop"), (-100.0, 100.0)),
    **dict.fromkeys(("energy", "projections"), (0.0, LARGEST)),
}  # Of columns; the others lie within ±LARGEST.


@dataclass(frozen=True)
class Kept:
    """A table of a run as a row has it.

    Args:
        columns: Those that it must have.
        others: Whether the row keeps columns beside these.
    """

    columns: tuple[str, ...]
    others: bool = True

    def of(self, table: pl.DataFrame) -> pl.DataFrame:
        """What a row keeps of a table.

        Raises:
            StoreError: If it is empty, or a column is missing or holds other values.
        """
        if table.is_empty():
            raise StoreError("is empty.")
        if missing := [name for name in self.columns if name not in table.columns]:
            raise StoreError(f"has no column {missing[0]!r}.")
        if torn := [name for name in FULL if name in table.columns and table[name].null_count()]:
            raise StoreError(f"lacks values in its column {torn[0]!r}.")
        kept = table if self.others else table.select(self.columns)
        for name, kind in kept.schema.items():
            rule, fits = KINDS.get(name, NUMBERS)
            if not fits(kind):
                raise StoreError(f"has {kind} in its column {name!r}, which takes {rule}.")
            if kind.is_numeric():
                _require_limits(kept[name])
        return kept


def _require_limits(column: pl.Series) -> None:
    low, high = LIMITS.get(column.name, (-LARGEST, LARGEST))
    least, most = column.min(), column.max()  # Of what is neither null nor NaN.
    if least is not None and (least < low or most > high):  # pyright: ignore[reportOperatorIssue]
        told = f"that are not between {low:g} and {high:g}"
        raise StoreError(f"has values in its column {column.name!r} {told}.")


HEAD = ("layer", "head")
DROPS = Kept((*HEAD, "drop", "low", "high"), others=False)
DEPOSITS = Kept(("layer", "gap", "deposit"))
KERNELS = ("tangent_largest", "tangent_plain_largest", "newton_largest", "newton_plain_largest")
ABLATIONS = [name for name in MEASURES if name.startswith("ablation")]
KEPT: Mapping[str, Kept] = {
    "metrics": Kept(("epoch", "step", "split", "loss", "accuracy"), others=False),
    **dict.fromkeys(ABLATIONS, DROPS),
    **dict.fromkeys((name.replace("ablation", "deposit") for name in ABLATIONS), DEPOSITS),
    "spectrum": Kept((*HEAD, "toeplitz", "contraction_spectral"), others=False),
    "lengths": Kept(("factor", "accuracy")),
    "start": Kept((*HEAD, *KERNELS)),
    "head_gradients": Kept(("step", *HEAD, "energy", "projections")),
    "head_growth": Kept((*HEAD, "energy")),
    "progress": Kept(("step", "train_accuracy", "test_loss", "test_accuracy")),
}  # Tables of a run.
