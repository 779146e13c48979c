"""What commands share: options, tables, progress bars."""

__all__ = [
    "RARE",
    "ROOT",
    "WORKERS",
    "ConditionOption",
    "DeviceOption",
    "Epochs",
    "Examples",
    "OutPage",
    "Own",
    "PrecisionOption",
    "RunsRoot",
    "ScaleOption",
    "Seeds",
    "Settings",
    "Shown",
    "StopAfter",
    "WorkersOption",
    "attempted",
    "bars",
    "changes_of",
    "chosen_seeds",
    "complain",
    "console",
    "counted",
    "explain",
    "frame",
    "head_parts",
    "lasting",
    "named",
    "place_of",
    "plan_bar",
    "refuse_given",
    "resolve_own",
    "say",
    "show",
    "table",
    "try_own",
    "try_task",
]

from .display import Shown, show
from .options import (
    ROOT,
    WORKERS,
    ConditionOption,
    DeviceOption,
    Epochs,
    Examples,
    OutPage,
    PrecisionOption,
    RunsRoot,
    ScaleOption,
    Seeds,
    Settings,
    StopAfter,
    WorkersOption,
    changes_of,
    chosen_seeds,
    refuse_given,
)
from .own import Own, attempted, named, place_of, resolve_own, try_own, try_task
from .progress import bars, counted, plan_bar
from .rare import RARE
from .spectra import head_parts
from .terminal import complain, console, explain, frame, lasting, say, table
