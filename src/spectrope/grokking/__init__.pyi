"""Grokking on operations modulo a prime and on images: tasks, models, training, measures, theory."""

__all__ = [
    "Coverage",
    "Distribution",
    "GrokExperiment",
    "GrokTraining",
    "Grokked",
    "ModularConfig",
    "ModularTransformer",
    "Random",
    "ShapesConfig",
    "ShapesExperiment",
    "ShapesTraining",
    "Square",
    "Strip",
    "coverage_of",
    "tracing",
]

from .compare import tracing
from .config import GrokExperiment, Grokked, GrokTraining, ShapesExperiment, ShapesTraining
from .coverage import Coverage, coverage_of
from .models.transformer import ModularTransformer
from .tasks.distributions import Distribution, Random, Square, Strip
from .tasks.modular import ModularConfig
from .tasks.shapes import ShapesConfig
