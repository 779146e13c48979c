"""Weights of lags as entries of Toeplitz matrices, and bounds on the rounding error of their products by
FFT."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from spectrope.encodings import Context, Encoding, Form
from spectrope.fast.certificate import UP, Certificate
from spectrope.fast.lag_weights import require_consecutive

FFT_STEP = 16  # Units of rounding per doubling of the length that a transform may lose, in the 2-norm.
SHARE = 0.05  # Of the tolerance that transforms may take.


@dataclass(frozen=True)
class LagSizes:
    """What rounding in transforms depends on.

    Args:
        energy: Largest 2-norm of a head's weights of lags, none of which is above 1.
        least: Least weight of the nearest key that a query sees.
        length: Points that a transform pads: the number of keys, or of queries where there are more.
    """

    energy: float
    least: float
    length: int


@dataclass(frozen=True)
class LagTable:
    """Weights of lags 1 - i, ..., j - 1, (h, lags), at most 1, and the least weight that a query sees."""

    weights: Float[Tensor, "h lags"]
    least: float
    n_keys: int

    @property
    def sizes(self) -> LagSizes:
        """What rounding depends on."""
        energy = float(self.weights.detach().square().sum(1).max()) ** 0.5
        return LagSizes(energy, self.least, max(self.n_keys, self.weights.shape[1] + 1 - self.n_keys))


def lag_table(ctx: Context, encoding: Encoding, causal: bool) -> LagTable:
    """The exponential of an encoding's lag bias, less each head's largest, 0 where it is not seen.

    Raises:
        UnsupportedError: If there is a bias, and positions are not consecutive and shared.
    """
    n_q, n_k, heads = ctx.q.shape[-2], ctx.k.shape[-2], ctx.q.shape[1]
    lags = torch.arange(1 - n_q, n_k, dtype=torch.float64, device=ctx.q.device)
    seen = (lags >= 0) | (not causal)
    if encoding.form is Form.DOT:
        return LagTable(seen.double().expand(heads, -1), 1.0, n_k)
    require_consecutive(ctx)
    bias = encoding.lag_bias(lags).double().T.expand(heads, -1)
    bias = bias - bias[:, seen].detach().amax(1, keepdim=True)
    nearest = bias[:, seen] if ctx.mask is not None or n_q > n_k else bias[:, n_q - 1, None]
    return LagTable(torch.where(seen, bias, -torch.inf).exp(), float(nearest.detach().amin().exp()), n_k)


def lag_sizes(ctx: Context, encoding: Encoding, causal: bool) -> LagSizes:
    """`lag_table(...).sizes`, without the table where all weights are 1."""
    if encoding.form is not Form.DOT:
        return lag_table(ctx, encoding, causal).sizes
    n_q, n_k = ctx.q.shape[-2], ctx.k.shape[-2]
    return LagSizes(float(n_k if causal else n_q + n_k - 1) ** 0.5, 1.0, max(n_q, n_k))


def transform_bound(certificate: Certificate, norm: float, lags: LagSizes) -> float:
    r"""Bound on the error that transforms add to an output, in units of max|v|.

    A transform of L points is taken to lose at most :math:`\rho = 16 u \log_2 L` of a vector's 2-norm
    (Higham, 2002, Thm. 24.2, with a wide margin for radices other than 2). Then a convolution of t with x is
    off by :math:`\rho(\|t\|_2\|x\|_1 + 2\|t\|_1\|x\|_2) \le 3\sqrt{2 n}\,\rho\,\|t\|_2\|x\|_2`. By
    Cauchy-Schwarz the sum over features, which adds a unit for each, is off by that with
    :math:`\sqrt n \sum_m |a_m| N^m \max|v|` for :math:`\|x\|_2`, N bounding :math:`|q||k|`. Numerator and
    denominator both are, and the denominator is at least :math:`(1-\epsilon)e^{-B}` times the least weight of
    a key that is seen.
    """
    polynomial, n = certificate.polynomial, lags.length
    unit = torch.finfo(torch.float64).eps / 2
    lost = unit * (FFT_STEP * math.log2(4 * n) + certificate.features)
    moduli = polynomial.magnitude(norm)
    least = (1 - polynomial.error_bound) * math.exp(-polynomial.reach) * lags.least
    share = 3.3 * 2**0.5 * lost * n * lags.energy * moduli / max(least, 1e-300)
    return 2 * share / (1 - share) * (1 + UP) if share < 0.5 else math.inf
