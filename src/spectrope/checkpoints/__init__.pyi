"""Other people's models: loading, audit, comparison, ablation and spectra."""

__all__ = [
    "LENGTH",
    "CheckpointAblation",
    "CheckpointFill",
    "Checkpoints",
    "Measured",
    "is_checkpoint",
    "plan_checkpoint",
    "register_attention",
    "trained_length",
]

from .ablation.show import CheckpointAblation
from .ablation.sweep import CheckpointFill
from .adapters.attention import register_attention
from .adapters.inputs import trained_length
from .adapters.structure import is_checkpoint
from .attention_plan import plan_checkpoint
from .options import Checkpoints
from .spectrum_show import LENGTH, Measured
