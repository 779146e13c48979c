"""Positional encodings, one per file, with position rules and frequency schedules inside."""

__all__ = [
    "CABLE",
    "ENCODINGS",
    "FIRE",
    "NTK",
    "POSITIONS",
    "SCHEDULES",
    "T5",
    "TUPE",
    "ALiBi",
    "Arange",
    "Blend",
    "CatalogueEntry",
    "CoPE",
    "Composite",
    "Context",
    "DeBERTa",
    "DynamicNTK",
    "Encoding",
    "EncodingConfig",
    "FactorisedTable",
    "FoPE",
    "FoX",
    "Form",
    "FrozenPhases",
    "Geometric",
    "Group",
    "HARoPE",
    "Interpolated",
    "KerpleLog",
    "KerplePower",
    "LagBias",
    "LawCheck",
    "Learned",
    "LearnedFrequencies",
    "Linear",
    "Llama3",
    "LongRoPE",
    "MisreadRoPE",
    "NoPE",
    "PaTH",
    "Pairing",
    "PartialDims",
    "PerHead",
    "PerLayer",
    "Positions",
    "Proportional",
    "RandomSubset",
    "RandomVectors",
    "RelativeTable",
    "RoPE",
    "Sandwich",
    "Schedule",
    "Shaw",
    "Shifted",
    "ShuffledPhases",
    "Side",
    "Sinusoidal",
    "Sized",
    "Sizes",
    "Sum",
    "Tag",
    "TransformerXL",
    "XPos",
    "YaRN",
    "alibi_slopes",
    "complex_pairs",
    "describe",
    "digit_positions",
    "documented",
    "geometric",
    "is_encoding_class",
    "laws_of",
    "multiply_pairs",
    "ntk_slowdown",
    "parse_encoding",
    "read_value",
    "t5_bucket",
]

from .alibi import ALiBi, alibi_slopes
from .base import (
    ENCODINGS,
    CatalogueEntry,
    Encoding,
    EncodingConfig,
    LagBias,
    Sized,
    describe,
    is_encoding_class,
)
from .blend import Blend
from .composite import Composite
from .context import Context, Form, Side, Tag
from .cope import CoPE
from .deberta import DeBERTa
from .decay import CABLE, FoX
from .docstrings import documented
from .factorised import FactorisedTable
from .fire import FIRE
from .fope import FoPE
from .harope import HARoPE
from .kerple import KerpleLog, KerplePower
from .laws import LawCheck, Sizes, laws_of
from .learned import Learned
from .misread_rope import MisreadRoPE
from .nope import NoPE
from .partial_dims import PartialDims
from .parts import Pairing, complex_pairs, multiply_pairs
from .path import PaTH
from .per_head import Group, PerHead
from .per_layer import PerLayer
from .positions.arange import Arange
from .positions.base import POSITIONS, Positions
from .positions.digits import digit_positions
from .positions.interpolated import Interpolated
from .positions.random_subset import RandomSubset
from .positions.shifted import Shifted
from .random import RandomVectors
from .relative import RelativeTable
from .rope import RoPE
from .sandwich import Sandwich
from .schedules.base import SCHEDULES, Schedule, geometric
from .schedules.geometric import Geometric
from .schedules.learned import LearnedFrequencies
from .schedules.linear import Linear
from .schedules.llama3 import Llama3
from .schedules.longrope import LongRoPE
from .schedules.ntk import NTK, DynamicNTK, ntk_slowdown
from .schedules.phases import FrozenPhases, ShuffledPhases
from .schedules.proportional import Proportional
from .schedules.yarn import YaRN
from .shaw import Shaw
from .sinusoidal import Sinusoidal
from .spec import parse_encoding, read_value
from .sum import Sum
from .t5 import T5, t5_bucket
from .transformer_xl import TransformerXL
from .tupe import TUPE
from .xpos import XPos
