"""A spectroscope for positional encodings in Transformers."""

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

from .checkpoints.adapters.attention import register_attention
from .checkpoints.audit import audit, diff
from .encodings.base import ENCODINGS, Context, Encoding
from .figures import save_figure, write_report
from .lab.engines.local import execute
from .lab.runs import load_model
from .lab.training.scales import experiment
from .models.decoder import Decoder, DecoderConfig
from .store import Run, find_runs, load_run
from .tasks.base import TASKS, Task
