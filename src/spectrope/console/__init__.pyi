"""What commands share: options, tables, progress bars."""

__all__ = [
    "RARE",
    "ROOT",
    "CertificateOption",
    "ConditionOption",
    "DeviceOption",
    "DropPositions",
    "EngineOptions",
    "Epochs",
    "Examples",
    "JsonOption",
    "OutPage",
    "Own",
    "PrecisionOption",
    "RayOptions",
    "RunsRoot",
    "ScaleOption",
    "Seeds",
    "Settings",
    "Shown",
    "StopAfter",
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
    "options_again",
    "plan_bar",
    "print_json",
    "refuse_given",
    "resolve_own",
    "say",
    "show",
    "silent",
    "steps_or_never",
    "table",
    "term_parts",
    "try_own",
    "try_task",
    "with_options",
]

from .display import Shown, show
from .engine import EngineOptions, RayOptions
from .experiment_options import (
    ConditionOption,
    DropPositions,
    Epochs,
    Examples,
    PrecisionOption,
    ScaleOption,
    Settings,
    changes_of,
)
from .options import (
    ROOT,
    CertificateOption,
    DeviceOption,
    JsonOption,
    OutPage,
    RunsRoot,
    Seeds,
    StopAfter,
    chosen_seeds,
    options_again,
    refuse_given,
    steps_or_never,
)
from .own import Own, named, resolve_own, try_own, try_task
from .progress import bars, counted, plan_bar
from .rare import RARE
from .spectra import head_parts, term_parts
from .terminal import complain, console, explain, frame, lasting, print_json, say, silent, table, with_options
