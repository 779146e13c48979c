"""Tasks of the decoder, one per file: labelled sequences, an oracle, the best possible accuracy."""

__all__ = [
    "TASKS",
    "Addition",
    "Batch",
    "Counting",
    "Distance",
    "Dyck",
    "GridCounting",
    "GridDistance",
    "Mixed",
    "PictureCopy",
    "Reversal",
    "Size",
    "Task",
    "TaskConfig",
    "check_task",
]

from .addition import Addition
from .base import TASKS, Batch, Size, Task, TaskConfig
from .checks import check_task
from .counting import Counting
from .distance import Distance
from .dyck import Dyck
from .grid_counting import GridCounting
from .grid_distance import GridDistance
from .mixed import Mixed
from .picture import PictureCopy
from .reversal import Reversal
