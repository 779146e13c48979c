"""The spectral quantities of one attention head, as a record that needs no model to be read."""

from dataclasses import dataclass, fields

from spectrope.stats import Interval


@dataclass(frozen=True, kw_only=True)
class HeadSpectrum:
    """One head's logits, as means over examples with intervals over them; None where undefined.

    Toeplitz shares, ranks and residuals speak of the logits that softmax receives, bias included, over the
    pairs that attention allows; contractions and residuals of the product of queries and keys. Shares and
    residuals are fractions, contractions ratios of norms, ranks counts. Where nothing else is said they are
    those of logits minus row means, which softmax ignores.

    Args:
        toeplitz_raw: Share of energy in the nearest Toeplitz matrix, row means kept.
        toeplitz_mean_removed: The same for logits minus their one mean.
        toeplitz: Share of lags beyond row effects.
        toeplitz_content: The same for the product of queries and keys before rotation and without bias,
            where there is one or the other.
        contraction_spectral: Largest singular value with rotation over that without it.
        contraction_frobenius: Frobenius norm likewise.
        contraction_nuclear: Sum of singular values likewise.
        contraction_raw_spectral: Largest singular value likewise, row means kept.
        stable_rank: Sum of squared singular values over the largest square.
        participation_rank: Squared sum of singular values over their sum of squares.
        entropy_rank: Exponential of the entropy of normalised singular values.
        factorisation: Least residual of the complex logits as content times position, row means kept;
            defined with a steady rotation of all coordinates.
    """

    toeplitz_raw: Interval | None
    toeplitz_mean_removed: Interval | None
    toeplitz: Interval | None
    toeplitz_content: Interval | None
    contraction_spectral: Interval | None
    contraction_frobenius: Interval | None
    contraction_nuclear: Interval | None
    contraction_raw_spectral: Interval | None
    stable_rank: Interval | None
    participation_rank: Interval | None
    entropy_rank: Interval | None
    factorisation: Interval | None


QUANTITIES = tuple(field.name for field in fields(HeadSpectrum))
