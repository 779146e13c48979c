"""A spectroscope for positional encodings in Transformers.

The names below are the library's front door; each is imported when it is first used.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spectrope.auditing import audit, diff
    from spectrope.encodings.base import ENCODINGS, Context, Encoding
    from spectrope.models.adapters.attention import register_attention
    from spectrope.models.decoder import Decoder, DecoderConfig
    from spectrope.report import save_figure, write_report
    from spectrope.store import Run, find_runs, load_run
    from spectrope.sweeps.local import execute
    from spectrope.sweeps.runs import load_model
    from spectrope.tasks.base import TASKS, Task
    from spectrope.training.scales import experiment

_HOMES = {
    "ENCODINGS": "encodings.base",
    "TASKS": "tasks.base",
    "Context": "encodings.base",
    "Decoder": "models.decoder",
    "DecoderConfig": "models.decoder",
    "Encoding": "encodings.base",
    "Run": "store",
    "Task": "tasks.base",
    "audit": "auditing",
    "diff": "auditing",
    "execute": "sweeps.local",
    "experiment": "training.scales",
    "find_runs": "store",
    "load_model": "sweeps.runs",
    "load_run": "store",
    "register_attention": "models.adapters.attention",
    "save_figure": "report",
    "write_report": "report",
}

__all__ = [
    "ENCODINGS",
    "TASKS",
    "Context",
    "Decoder",
    "DecoderConfig",
    "Encoding",
    "Run",
    "Task",
    "audit",
    "diff",
    "execute",
    "experiment",
    "find_runs",
    "load_model",
    "load_run",
    "register_attention",
    "save_figure",
    "write_report",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'spectrope' has no attribute {name!r}")
    return getattr(importlib.import_module(f"spectrope.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
