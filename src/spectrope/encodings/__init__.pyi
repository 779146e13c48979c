"""Positional encodings, one per file, with position rules and frequency schedules inside."""

__all__ = [
    "CABLE",
    "CLEX",
    "ENCODINGS",
    "FIRE",
    "GRAPE",
    "NAMED",
    "NTK",
    "POSITIONS",
    "SCHEDULES",
    "T5",
    "TUPE",
    "ALiBi",
    "Arange",
    "AxialRoPE",
    "Band",
    "BandChange",
    "Banded",
    "Blend",
    "CARoPE",
    "CatalogueEntry",
    "CoPE",
    "ComplexFormer",
    "Composite",
    "Context",
    "DRoPE",
    "DeBERTa",
    "Differential",
    "DynamicNTK",
    "Encoding",
    "EncodingConfig",
    "FactorisedTable",
    "Faithful",
    "FoPE",
    "FoX",
    "Form",
    "FrozenPhases",
    "GRAPEPath",
    "Geometric",
    "GrayCode",
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
    "LinearAttention",
    "Llama3",
    "LogDistance",
    "LongRoPE",
    "MRoPE",
    "MisreadRoPE",
    "MixedRoPE",
    "Named",
    "NoPE",
    "PaTH",
    "Pairing",
    "PartialDims",
    "PerHead",
    "PerLayer",
    "PoPE",
    "Positions",
    "Proportional",
    "RandomSubset",
    "RandomVectors",
    "RelativeTable",
    "RetNet",
    "RoPE",
    "RoPEPlusPlus",
    "Sandwich",
    "Schedule",
    "Scope",
    "SelectiveRoPE",
    "Shaw",
    "Shifted",
    "ShuffledPhases",
    "Side",
    "Sinusoidal",
    "Sized",
    "Sizes",
    "SparesSink",
    "Sum",
    "Tag",
    "Temperature",
    "TransformerXL",
    "Wavelet",
    "Weierstrass",
    "XPos",
    "YaRN",
    "alibi_slopes",
    "combination",
    "complex_pairs",
    "describe",
    "digit_positions",
    "documented",
    "geometric",
    "grid_positions",
    "is_encoding_class",
    "kernel_band",
    "laws_of",
    "most_bands",
    "mrope_positions",
    "multiply_pairs",
    "ntk_slowdown",
    "order",
    "parse_encoding",
    "parse_positions",
    "read_value",
    "rotating_pairs",
    "split_sizes",
    "t5_bucket",
]

from .alibi import ALiBi, alibi_slopes
from .axial import AxialRoPE, MixedRoPE, MRoPE
from .bands import Band, BandChange, Banded, SparesSink, kernel_band, most_bands, rotating_pairs
from .base import (
    ENCODINGS,
    CatalogueEntry,
    Encoding,
    EncodingConfig,
    LagBias,
    Scope,
    Sized,
    describe,
    is_encoding_class,
)
from .blend import Blend
from .complexformer import ComplexFormer
from .composite import Composite
from .context import Context, Form, Side, Tag
from .cope import CoPE
from .deberta import DeBERTa
from .decay import CABLE, FoX
from .differential import Differential
from .docstrings import documented
from .drope import DRoPE
from .factorised import FactorisedTable
from .faithful import Faithful
from .fire import FIRE
from .fope import FoPE
from .grape import GRAPE
from .grape_ap import GRAPEPath
from .gray import GrayCode
from .harope import HARoPE
from .imaginary import RoPEPlusPlus
from .kerple import KerpleLog, KerplePower
from .laws import LawCheck, Sizes, laws_of
from .learned import Learned
from .linear_attention import LinearAttention
from .log_distance import LogDistance
from .misread_rope import MisreadRoPE
from .named import NAMED, Named, combination
from .nope import NoPE
from .partial_dims import PartialDims
from .parts import Pairing, complex_pairs, multiply_pairs
from .path import PaTH
from .per_head import Group, PerHead
from .per_layer import PerLayer
from .pope import PoPE
from .positions.arange import Arange
from .positions.axes import grid_positions, mrope_positions, order
from .positions.base import POSITIONS, Positions
from .positions.digits import digit_positions
from .positions.interpolated import Interpolated
from .positions.random_subset import RandomSubset
from .positions.shifted import Shifted
from .random import RandomVectors
from .relative import RelativeTable
from .retnet import RetNet
from .rope import RoPE
from .sandwich import Sandwich
from .schedules.base import SCHEDULES, Schedule, geometric
from .schedules.clex import CLEX
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
from .spec import parse_encoding, parse_positions, read_value, split_sizes
from .sum import Sum
from .t5 import T5, t5_bucket
from .temperature import Temperature
from .token_rotary import CARoPE, SelectiveRoPE
from .transformer_xl import TransformerXL
from .tupe import TUPE
from .wavelet import Wavelet
from .weierstrass import Weierstrass
from .xpos import XPos
