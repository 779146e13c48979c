"""Fields of a row: facts of the manifest and columns of tables, with their valid ranges."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import get_args

import polars as pl

from spectrope.core import Precision, StoreError
from spectrope.lab import Ablation, ContentOnlyAblation, PositionOnlyAblation
from spectrope.study.released.measures import RELEASED

LARGEST = 1e60  # Of numbers, so that sums of their squares stay finite.
MOST = 1e12  # Of what is counted: seconds, parameters, steps.


def _between(low: float, high: float) -> tuple[str, Callable[[object], bool]]:
    """The rule of a number, in words, and whether a value keeps it, as NaN does."""

    def fits(value: object) -> bool:
        return (
            isinstance(value, int | float)
            and not isinstance(value, bool)
            and not (value < low or value > high)
        )

    return f"a number between {low:g} and {high:g}", fits


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value.isprintable()


def _is_machine(value: object) -> bool:
    return isinstance(value, dict) and all(_is_text(str(word)) for pair in value.items() for word in pair)


PRECISIONS = tuple(name for name in get_args(Precision) if name != "auto")
FACTS: Mapping[str, tuple[str, Callable[[object], bool]]] = {
    **dict.fromkeys(("finished_at", "commit", "device"), ("text", _is_text)),
    "precision": (" or ".join(PRECISIONS), lambda value: value in PRECISIONS),
    "test_loss": _between(-LARGEST, LARGEST),
    **dict.fromkeys(("seconds", "cpu_seconds", "n_parameters"), _between(0.0, MOST)),
    **dict.fromkeys(("bayes_accuracy", "train_accuracy", "test_accuracy"), _between(0.0, 1.0)),
    "machine": ("a description of the machine", _is_machine),
}
NEEDED = ("finished_at", "precision")  # Facts that no row lacks.
LATER = ("cpu_seconds",)  # Facts that rows of earlier versions do not have.
WIDE = {pl.Int128, pl.UInt128}  # NumPy has none of these.
WHOLE = ("whole numbers", lambda kind: kind.is_integer() and kind not in WIDE)
KERNELS = ("tangent_largest", "tangent_plain_largest", "newton_largest", "newton_plain_largest")
TEXTS = ("split", "choice", "group", "intervention", "call")
COUNTS = ("epoch", "step", "layer", "head", "band")
KINDS: Mapping[str, tuple[str, Callable[[pl.DataType], bool]]] = {
    **dict.fromkeys(COUNTS, WHOLE),
    **dict.fromkeys(TEXTS, ("text", lambda kind: kind == pl.String)),
    "deposit": ("true or false", lambda kind: kind == pl.Boolean),
}  # Of columns; the others hold numbers.
FULL = (
    *("epoch", "step", "split", "layer", "head", "gap", "deposit", "factor", "accuracy"),
    *("group", "intervention", "call"),
)  # Without nulls.
NUMBERS = ("numbers", lambda kind: kind.is_float() or kind == pl.Null or WHOLE[1](kind))
LIMITS: Mapping[str, tuple[float, float]] = {
    **dict.fromkeys(("accuracy", "train_accuracy", "test_accuracy", "held_out_accuracy"), (0.0, 1.0)),
    **dict.fromkeys(("gap", "drop"), (-100.0, 100.0)),
    **dict.fromkeys(COUNTS, (0.0, MOST)),
    **dict.fromkeys(("energy", "projections", "contraction_spectral", *KERNELS), (0.0, LARGEST)),
}  # Of columns; the others lie within ±LARGEST.


@dataclass(frozen=True)
class Kept:
    """A table of a run as a row has it.

    Args:
        columns: Those that it must have.
        others: Whether the row keeps columns beside these.
        added: Columns that it keeps where a table has them, which older rows lack.
    """

    columns: tuple[str, ...]
    others: bool = True
    added: tuple[str, ...] = ()

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
        chosen = [*self.columns, *(name for name in self.added if name in table.columns)]
        is_whole = self.others or table.columns == chosen
        kept = table if is_whole else table.select(chosen)
        dtypes, kinds = {}, kept.schema
        for name, kind in kinds.items():
            rule, fits = KINDS.get(name, NUMBERS)
            if not fits(kind):
                raise StoreError(f"has {kind} in its column {name!r}, which takes {rule}.")
            if kind.is_numeric():
                _require_limits(kept[name])
                dtypes[name] = pl.Int64 if name in COUNTS else pl.Float64  # JSON may have 1 for 1.0.
        changed = {name: dtype for name, dtype in dtypes.items() if kinds[name] != dtype}
        return kept.cast(changed) if changed else kept


def _require_limits(column: pl.Series) -> None:
    low, high = LIMITS.get(column.name, (-LARGEST, LARGEST))
    least, most = column.min(), column.max()  # Of what is neither null nor NaN.
    if least is not None and (least < low or most > high):  # pyright: ignore[reportOperatorIssue]
        outside = f"that are not between {low:g} and {high:g}"
        raise StoreError(f"has values in its column {column.name!r} {outside}.")


HEAD = ("layer", "head")
MASSIVE = ("massive_queries", "massive_keys")
DROPS = Kept((*HEAD, "drop", "low", "high"), others=False)
DEPOSITS = Kept(("layer", "gap", "deposit"))
ABLATIONS = [measure.kind for measure in (Ablation, PositionOnlyAblation, ContentOnlyAblation, *RELEASED)]
KEPT: Mapping[str, Kept] = {
    "metrics": Kept(("epoch", "step", "split", "loss", "accuracy"), others=False),
    **dict.fromkeys(ABLATIONS, DROPS),
    **dict.fromkeys((name.replace("ablation", "deposit") for name in ABLATIONS), DEPOSITS),
    "spectrum": Kept((*HEAD, "toeplitz", "contraction_spectral"), others=False, added=MASSIVE),
    "lengths": Kept(("factor", "accuracy")),
    "start": Kept((*HEAD, *KERNELS)),
    "head_gradients": Kept(("step", *HEAD, "energy", "projections")),
    "head_growth": Kept((*HEAD, "energy")),
    "atlas": Kept((*HEAD, "intervention", "band", "drop", "call"), others=False),
    "atlas-heads": Kept((*HEAD, "reach"), others=False, added=("previous", "induction")),
    "head-groups": Kept(("group", "intervention", "band", "drop", "loss_increase"), others=False),
    "attention-plan": Kept((*HEAD, "length", "choice", "cost_estimate"), others=False),
    "progress": Kept(("step", "train_loss", "train_accuracy", "test_loss", "test_accuracy")),
}  # Tables of a run.
PARTNERS = {name: name.replace("ablation", "deposit") for name in ABLATIONS}


def paired(tables: Mapping[str, pl.DataFrame]) -> dict[str, pl.DataFrame]:
    """The tables without ablations that lack what the deposit rule says of them, and the other way round."""
    lone = {name for pair in PARTNERS.items() for name in pair if not set(pair) <= set(tables)}
    return {name: table for name, table in tables.items() if name not in lone}
