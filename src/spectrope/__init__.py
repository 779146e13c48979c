"""A spectroscope for positional encodings in Transformers.

The names below are the library's front door; each is imported when it is first used.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spectrope.checkpoints.adapters.attention import register_attention
    from spectrope.checkpoints.audit import audit, diff
    from spectrope.encodings.base import ENCODINGS, Context, Encoding
    from spectrope.figures import save_figure, write_report
    from spectrope.lab.engines.local import execute
    from spectrope.lab.runs import load_model
    from spectrope.lab.training.scales import experiment
    from spectrope.models.decoder import Decoder, DecoderConfig
    from spectrope.store import Run, find_runs, load_run
    from spectrope.tasks.base import TASKS, Task

_HOMES = {
    "ENCODINGS": "encodings.base",
    "TASKS": "tasks.base",
    "Context": "encodings.base",
    "Decoder": "models.decoder",
    "DecoderConfig": "models.decoder",
    "Encoding": "encodings.base",
    "Run": "store",
    "Task": "tasks.base",
    "audit": "checkpoints.audit",
    "diff": "checkpoints.audit",
    "execute": "lab.engines.local",
    "experiment": "lab.training.scales",
    "find_runs": "store",
    "load_model": "lab.runs",
    "load_run": "store",
    "register_attention": "checkpoints.adapters.attention",
    "save_figure": "figures",
    "write_report": "figures",
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
