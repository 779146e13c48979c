"""Positional encodings, one per file, with position rules and frequency schedules inside."""

__all__ = [
    "ENCODINGS",
    "POSITIONS",
    "T5",
    "ALiBi",
    "Arange",
    "CatalogueEntry",
    "Composite",
    "Context",
    "DynamicNTK",
    "Encoding",
    "EncodingConfig",
    "FactorisedTable",
    "Form",
    "Geometric",
    "Group",
    "Learned",
    "Linear",
    "Llama3",
    "LongRoPE",
    "MisreadRoPE",
    "NoPE",
    "Pairing",
    "PerHead",
    "Positions",
    "Proportional",
    "RandomVectors",
    "RelativeTable",
    "RoPE",
    "Schedule",
    "ShuffledPhases",
    "Side",
    "Sinusoidal",
    "Sized",
    "Sizes",
    "Sum",
    "Tag",
    "YaRN",
    "alibi_slopes",
    "complex_pairs",
    "describe",
    "digit_positions",
    "documented",
    "geometric",
    "laws_of",
    "ntk_slowdown",
    "t5_bucket",
]

from .alibi import ALiBi, alibi_slopes
from .base import (
    ENCODINGS,
    CatalogueEntry,
    Context,
    Encoding,
    EncodingConfig,
    Form,
    Side,
    Sized,
    Tag,
    describe,
    documented,
)
from .composite import Composite
from .factorised import FactorisedTable
from .laws import Sizes, laws_of
from .learned import Learned
from .misread_rope import MisreadRoPE
from .nope import NoPE
from .parts import Pairing, complex_pairs
from .per_head import Group, PerHead
from .positions.arange import Arange
from .positions.base import POSITIONS, Positions
from .positions.digits import digit_positions
from .random import RandomVectors
from .relative import RelativeTable
from .rope import RoPE
from .schedules.base import Schedule, geometric
from .schedules.geometric import Geometric
from .schedules.linear import Linear
from .schedules.llama3 import Llama3
from .schedules.longrope import LongRoPE
from .schedules.ntk import DynamicNTK, ntk_slowdown
from .schedules.phases import ShuffledPhases
from .schedules.proportional import Proportional
from .schedules.yarn import YaRN
from .sinusoidal import Sinusoidal
from .sum import Sum
from .t5 import T5, t5_bucket
