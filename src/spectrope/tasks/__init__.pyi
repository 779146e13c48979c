"""Tasks of the decoder, one per file: labelled sequences, an oracle, the best possible accuracy."""

__all__ = [
    "TASKS",
    "Batch",
    "Size",
    "Task",
    "TaskConfig",
    "check_task",
]

from .base import TASKS, Batch, Size, Task, TaskConfig
from .checks import check_task
