"""What commands share: options, tables, progress bars."""

__all__ = [
    "ROOT",
    "WORKERS",
    "ConditionOption",
    "DeviceOption",
    "Epochs",
    "Examples",
    "Own",
    "RunsRoot",
    "ScaleOption",
    "Shown",
    "StopAfter",
    "bars",
    "complain",
    "console",
    "counted",
    "explain",
    "frame",
    "head_parts",
    "lasting",
    "named",
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
    RunsRoot,
    ScaleOption,
    StopAfter,
    refuse_given,
)
from .own import Own, named, resolve_own, try_own, try_task
from .progress import bars, counted, plan_bar
from .spectra import head_parts
from .terminal import complain, console, explain, frame, lasting, say, table
