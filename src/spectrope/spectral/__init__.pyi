"""Toeplitz structure of attention logits: operators, spectra, contraction, decomposition, learning.

Tensors in, frozen records out; nothing here knows of models or encodings. Names that end in `_bound` are
proven, those that end in `_estimate` are not. Everything is computed in float64 (complex128) whatever comes
in. Each function has an executed example; what of the paper's theory they decide is in
docs/explanation/ledger.md.
"""

__all__ = [
    "BandGram",
    "Contraction",
    "EffectShares",
    "EffectiveRanks",
    "Effects",
    "Extreme",
    "Extremes",
    "GradientSpectrum",
    "HadamardContraction",
    "KernelSummary",
    "LagEffects",
    "LogitTerms",
    "Majorisation",
    "NormRatios",
    "SpanOverlap",
    "SplitVectors",
    "SymbolMatch",
    "SymbolRange",
    "TermEnergies",
    "ToeplitzOperator",
    "ToeplitzShares",
    "balanced_effects",
    "band_gram",
    "band_labels",
    "commutes_with_rotations",
    "commuting_share",
    "contracted_symbol",
    "effect_shares",
    "effective_ranks",
    "eigenvalue_match",
    "extremal_eigenvalues",
    "factorisation_residuals",
    "fast_length",
    "fitted_rate",
    "gauss_newton",
    "gradient_spectrum",
    "hadamard_contraction",
    "head_contraction",
    "head_participation",
    "interaction_rank",
    "ky_fan_sums",
    "lag_effects",
    "lag_effects_of_product",
    "lag_gradients",
    "least_squares_effects",
    "logit_matrices",
    "logit_terms",
    "majorises",
    "nearest_toeplitz",
    "nearest_toeplitz_of_product",
    "null_shares",
    "position_factor",
    "rope_kernel",
    "rope_kernel_eigenvalues",
    "rope_logits",
    "rotated",
    "row_centred",
    "schur_bounds",
    "singular_value_match",
    "softmax_curvature",
    "span_overlap",
    "summarise",
    "support_function",
    "symbol_range",
    "tangent_kernel",
    "term_energies",
    "toeplitz_shares",
    "toeplitz_shares_of_product",
    "variance_ratio",
]

from .contraction import (
    Contraction,
    HadamardContraction,
    NormRatios,
    contracted_symbol,
    hadamard_contraction,
    head_contraction,
    schur_bounds,
    variance_ratio,
)
from .extremes import Extreme, Extremes, extremal_eigenvalues
from .fourier import fast_length
from .hidden import (
    Effects,
    EffectShares,
    LogitTerms,
    balanced_effects,
    commutes_with_rotations,
    commuting_share,
    effect_shares,
    least_squares_effects,
    logit_terms,
)
from .interaction import interaction_rank
from .kernel import rope_kernel, rope_kernel_eigenvalues
from .learning import GradientSpectrum, gradient_spectrum, head_participation, lag_gradients
from .logits import row_centred
from .majorisation import Majorisation, ky_fan_sums, majorises, support_function
from .operator import ToeplitzOperator
from .ranks import EffectiveRanks, effective_ranks
from .rope import (
    BandGram,
    band_gram,
    band_labels,
    factorisation_residuals,
    position_factor,
    rope_logits,
    rotated,
)
from .subspaces import SpanOverlap, span_overlap
from .symbol import SymbolRange, symbol_range
from .szego import SymbolMatch, eigenvalue_match, fitted_rate, singular_value_match
from .tangent import KernelSummary, gauss_newton, softmax_curvature, summarise, tangent_kernel
from .terms import SplitVectors, TermEnergies, logit_matrices, term_energies
from .toeplitz_share import (
    LagEffects,
    ToeplitzShares,
    lag_effects,
    lag_effects_of_product,
    nearest_toeplitz,
    nearest_toeplitz_of_product,
    null_shares,
    toeplitz_shares,
    toeplitz_shares_of_product,
)
