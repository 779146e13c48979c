"""A spectroscope for positional encodings in Transformers."""

__all__ = [
    "ENCODINGS",
    "FIGURES",
    "TASKS",
    "AblatedRun",
    "Atlas",
    "Comparison",
    "ConfigError",
    "Context",
    "Decoder",
    "DecoderConfig",
    "Drawing",
    "Encoding",
    "OwnModel",
    "Run",
    "SpectropeError",
    "StoreError",
    "Task",
    "UnsupportedError",
    "__version__",
    "ablate",
    "ablated",
    "atlas",
    "audit",
    "check",
    "check_laws",
    "check_runs",
    "compare",
    "compatible",
    "diff",
    "encodings",
    "execute",
    "experiment",
    "export",
    "figure",
    "lab",
    "load_encoding",
    "load_model",
    "load_run",
    "lock",
    "register_attention",
    "report",
    "runs",
    "spectrum",
    "table",
    "tasks",
    "tracker",
    "train",
    "unwatched",
    "watch_training",
]

from . import encodings, lab, tasks
from .checkpoints.adapters.attention import register_attention
from .checkpoints.adapters.own import OwnModel
from .checkpoints.audit import audit, diff
from .checkpoints.lock import check, lock
from .checkpoints.pairs.run import compatible
from .checkpoints.trackers import tracker
from .checkpoints.training.watch import watch_training
from .core.errors import ConfigError, SpectropeError, StoreError, UnsupportedError
from .core.progress import unwatched
from .core.version import __version__
from .encodings.base import ENCODINGS, Encoding
from .encodings.context import Context
from .figures import FIGURES, Drawing
from .front.ablate import AblatedRun, ablate, ablated
from .front.atlas import Atlas, atlas
from .front.check import check_runs
from .front.compare import Comparison, compare
from .front.export import export
from .front.figure import figure, report
from .front.laws import check_laws, load_encoding
from .front.runs import runs, table
from .front.spectrum import spectrum
from .front.targets import load_model
from .front.train import execute, train
from .lab.training.scales import experiment
from .models.decoder import Decoder, DecoderConfig
from .store import Run, load_run
from .tasks.base import TASKS, Task
