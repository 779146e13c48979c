"""Other people's models: loading, audit, comparison, ablation and spectra."""

__all__ = [
    "LENGTH",
    "CheckpointFill",
    "Checkpoints",
    "Measured",
    "Plan",
    "is_checkpoint",
    "plan_checkpoint",
    "register_attention",
    "trained_length",
]

from .ablation.show import Plan
from .ablation.sweep import CheckpointFill
from .adapters.attention import register_attention
from .adapters.inputs import trained_length
from .adapters.structure import is_checkpoint
from .attention_plan import plan_checkpoint
from .options import Checkpoints
from .spectrum_show import LENGTH, Measured
