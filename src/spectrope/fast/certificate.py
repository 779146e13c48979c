r"""Proven bounds on the error of polynomial attention, from norms of queries and keys."""

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from spectrope.fast.chunkwise import chunk_length
from spectrope.fast.minimax import WIDEST, ExpPolynomial, exp_polynomial
from spectrope.fast.monomials import SUMMED, feature_count

if TYPE_CHECKING:
    from spectrope.fast.transforms import LagSizes

STEP = 1.01  # Ranges are rounded up to its powers, so that few polynomials serve many.
SAFE = 1 + 1e-9  # Times a norm taken in float64.
UP = 2.0**-40  # Relative to a bound: above what computing it in float64 rounds away.
RIDGE = 1e-6
ISOMETRIC = 1e-5  # Rotations whose factors differ from 1 by less than this keep norms.
NARROW = 0.9  # Subspaces that hold more of the coordinates than this are not worth measuring.


@dataclass(frozen=True)
class LogitBounds:
    r"""Bounds on the logits of each head, over all examples, queries and keys that may be seen.

    Args:
        centre: Mean key c, or 0, with shape (b, h, 1, d); softmax ignores a shift of all keys.
        reach_bound: No :math:`|\langle q_i, k_j - c\rangle|` is larger, with shape (h,).
        norm_bound: No :math:`|q_i||k_j - c|` is larger, with shape (h,).
        bases: Orthonormal bases of the heads' coordinates, leading directions first, (3, h, d, d).
        remainder_bounds: Largest part of a product outside the first r vectors, r = 0, ..., d: (3, h, d + 1).
    """

    centre: Float[Tensor, "b h 1 d"]
    reach_bound: Float[Tensor, " h"]
    norm_bound: Float[Tensor, " h"]
    bases: Float[Tensor, "3 h d d"]
    remainder_bounds: Float[Tensor, "3 h d1"]

    def stretched(self, factor: float) -> "LogitBounds":
        """The bounds if all products were larger by a factor; one within rounding of 1 changes nothing."""
        if factor <= 1 + ISOMETRIC:
            return self
        names = ("reach_bound", "norm_bound", "remainder_bounds")
        return replace(self, **{name: getattr(self, name) * factor for name in names})

    def basis(self, head: int, rank: int) -> Float[Tensor, "d rank"]:
        """The leading vectors of the basis with the smallest remainder."""
        best = int(self.remainder_bounds[:, head, rank].argmin())
        return self.bases[best, head, :, :rank]


def bound_logits(
    q: Float[Tensor, "b h i d"],
    k: Float[Tensor, "b h j d"],
    keys: Bool[Tensor, "b j"] | None = None,
    negligible: float = math.inf,
) -> LogitBounds:
    r"""Bound the logits in O(n d^2): keys are centred, three bounds are taken, and the least one is kept.

    For a query q and centred keys these are :math:`|q| \max_j |k_j|`, the box
    :math:`\sum_c |q_c| \max_j |k_{jc}|`, and :math:`|A q| \max_j |A^{-1} k_j|` with
    :math:`A^2 = \overline{k k^\top}`, an ellipsoid, sharp where queries avoid the keys' long directions.
    Centring is a shift of each query's logits by a constant. A head whose bound it does not make smaller
    keeps its keys as they are.

    Args:
        q: Queries, rotated and scaled.
        k: Keys, rotated.
        keys: True at keys that may be seen.
        negligible: Subspaces are measured only if one narrower than nine tenths may leave out no more than
            this of any product, in logit units.
    """
    dtype = torch.float64 if k.dtype == torch.float64 else torch.float32
    q, k = q.detach().double(), k.detach().double()
    seen = torch.ones_like(k[..., :1]) if keys is None else keys[:, None, :, None].to(k.dtype)
    k = torch.where(seen > 0, k, 0.0)
    mean = (k.sum(2, keepdim=True) / seen.sum(2, keepdim=True).clamp(min=1)).to(dtype).double()
    reaches = [_reach(q, (k - centre) * seen) for centre in (mean, torch.zeros_like(mean))]
    centre = torch.where((reaches[0] <= reaches[1])[:, None, None], mean, 0.0)
    k, reach = (k - centre) * seen, torch.minimum(*reaches) * SAFE
    norms = q.norm(dim=-1).amax(-1) * k.norm(dim=-1).amax(-1)
    moments = [_moment(x) for x in (k, q)]
    bases = torch.stack([_basis(m) for m in (*moments, _scaled(moments[0]) + _scaled(moments[1]))])
    least = torch.stack([_least_remainder(moments[0], moments[1], basis) for basis in bases])
    if float(least[..., math.floor(NARROW * q.shape[-1])].min()) > negligible:
        remainder = torch.full_like(least, math.inf)
        remainder[..., -1] = 0.0
    else:
        remainder = torch.stack([_remainder(q, k, basis) for basis in bases])
    return LogitBounds(centre, reach, norms.amax(0) * SAFE, bases, remainder)


def _reach(q: Float[Tensor, "b h i d"], k: Float[Tensor, "b h j d"]) -> Float[Tensor, " h"]:
    """The least of the three bounds for each query, and the largest of these."""
    longest = k.norm(dim=-1).amax(-1)[..., None]
    bounds = [q.norm(dim=-1) * longest, (q.abs() @ k.abs().amax(2)[..., None]).squeeze(-1)]
    root, inverse = _roots(_moment(k))
    bounds.append((q @ root).norm(dim=-1) * (k @ inverse).norm(dim=-1).amax(-1)[..., None])
    return torch.stack(bounds).amin(0).amax((0, 2))


def _least_remainder(
    of_keys: Float[Tensor, "h d d"], of_queries: Float[Tensor, "h d d"], basis: Float[Tensor, "h d d"]
) -> Float[Tensor, "h d1"]:
    """A lower bound of `_remainder`: the largest norm is no less than the mean one."""
    means = [(basis.mT @ m @ basis).diagonal(dim1=-2, dim2=-1).clamp(min=0) for m in (of_keys, of_queries)]
    tails = [F.pad(mean.flip(-1).cumsum(-1).flip(-1), (0, 1)).sqrt() for mean in means]
    return tails[0] * tails[1]


def _moment(x: Float[Tensor, "b h n d"]) -> Float[Tensor, "h d d"]:
    """Mean of x x^T over the batch; 0 where it is not finite, which makes all bounds infinite elsewhere."""
    return torch.nan_to_num((x.mT @ x).sum(0) / max(1, x.shape[0] * x.shape[2]), 0.0, 0.0, 0.0)


def _scaled(moment: Float[Tensor, "h d d"]) -> Float[Tensor, "h d d"]:
    return moment / moment.diagonal(dim1=-2, dim2=-1).sum(-1)[:, None, None].clamp(min=1e-300)


def _roots(moment: Float[Tensor, "h d d"]) -> tuple[Tensor, Tensor]:
    """Square root of a moment, kept away from being singular, and its inverse."""
    values, vectors = torch.linalg.eigh(_scaled(moment))
    values = (values.clamp(min=0) + RIDGE).sqrt()[:, None, :]
    return (vectors * values) @ vectors.mT, (vectors / values) @ vectors.mT


def _basis(moment: Float[Tensor, "h d d"]) -> Float[Tensor, "h d d"]:
    return torch.linalg.eigh(_scaled(moment))[1].flip(-1)


def _remainder(q: Tensor, k: Tensor, basis: Float[Tensor, "h d d"]) -> Float[Tensor, "h d1"]:
    """Largest norm of the queries' trailing coordinates times that of the keys', for each split."""
    tails = []
    for x in (q, k):
        squares = (x @ basis).square().flip(-1).cumsum(-1).flip(-1)
        largest = squares.amax(2)
        tails.append(torch.cat([largest, torch.zeros_like(largest[..., :1])], -1).sqrt())
    return (tails[0] * tails[1]).amax(0) * SAFE


@dataclass(frozen=True)
class RoundingSetting:
    """Sizes and precisions on which rounding errors depend, beside the features.

    Args:
        length: Most keys or queries.
        dim: Coordinates of a query.
        dtype: Dtype of the sums.
        out: Dtype of the output.
        deviation: Logit units by which weights of lags may be off.
        near: Lag from which weights of lags decay exponentially; None where all weights are 1.
        inputs: Dtype that queries and keys were rotated in; None where it is that of the sums.
    """

    length: int
    dim: int
    dtype: torch.dtype
    out: torch.dtype
    deviation: float = 0.0
    near: int | None = None
    inputs: torch.dtype | None = None


@dataclass(frozen=True)
class Premises:
    """Inputs of a certificate, from which it can be checked.

    Args:
        reach: No centred logit is larger in modulus, in logit units.
        norm: A bound of the product of a query's and a key's norm, in logit units.
        remainder: What the coordinates left out may add to a logit.
        setting: Lengths and dtypes.
        steps: Maximum number of roundings of a term of a sum.
        lags: Of the weights of lags, where sums are taken by FFT.
    """

    reach: float
    norm: float
    remainder: float
    setting: RoundingSetting
    steps: int
    lags: "LagSizes | None" = None


@dataclass(frozen=True)
class Certificate:
    r"""A polynomial, with a proven bound on the difference between attention with it and exact attention.

    Args:
        polynomial: Of exp, on a range that holds every logit.
        rank: Coordinates that features are taken of.
        epsilon_bound: Largest relative error of a weight.
        rounding_bound: What floating point adds, in units of max|v|.
        error_bound: Largest error of an output, in units of max|v|.
        premises: What it was computed from.
    """

    polynomial: ExpPolynomial
    rank: int
    epsilon_bound: float
    rounding_bound: float
    error_bound: float
    premises: Premises

    @property
    def features(self) -> int:
        """Features of each query and key where sums are taken over blocks."""
        return feature_count(self.rank, self.polynomial.degree)

    @property
    def terms(self) -> int:
        r"""Monomials of the polynomial, :math:`\binom{d+g}{g}`: those of which an FFT takes sums."""
        return math.comb(self.rank + self.polynomial.degree, self.polynomial.degree)


def certify(
    reach: float, norm: float, remainder: float, rank: int, degree: int, setting: RoundingSetting
) -> Certificate | None:
    r"""The certificate of one degree and rank, or None where there is none.

    Exact attention is that of the vectors as given, rotated already and rounded to their dtype.

    Weights of a query are off by factors :math:`1 + r_j`, :math:`|r_j| \le \epsilon`. The mean moves by
    :math:`\sum_j p_j (r_j - \bar r) v_j / (1 + \bar r)`, most where r takes its two ends only: with
    :math:`s = \bar r/\epsilon` it is at most :math:`\epsilon (1 - s^2)/(1 + \epsilon s)`, and over s

    .. math:: |o - \mathrm{exact}| \le \frac{2(1-\sqrt{1-\epsilon^2})}{\epsilon} \max|v|.

    Here :math:`1+\epsilon = (1+\epsilon_P)e^\eta`, with :math:`\epsilon_P` the polynomial's relative error on
    :math:`[-B-\eta, B+\eta]`, and :math:`\eta` what moves logits: coordinates left out, lag weights, and the
    rounding of inputs and products.

    Args:
        reach: B, in logit units.
        norm: A bound of :math:`|q||k|`, in logit units.
        remainder: What the coordinates left out may add to a logit.
        rank: Coordinates kept.
        degree: Of the polynomial.
        setting: Lengths and dtypes.
    """
    unit = torch.finfo(setting.inputs or setting.dtype).eps / 2
    moved = remainder + 4 * (setting.dim + 4) * unit * norm + setting.deviation
    wide = rounded_up(reach + moved)
    if not math.isfinite(norm) or 2 * wide > WIDEST:
        return None
    polynomial = exp_polynomial(degree, -wide, wide)
    epsilon = (1 + polynomial.error_bound) * math.exp(moved) * (1 + UP) - 1
    if epsilon >= 1:
        return None
    rounding = rounding_bound(polynomial, norm, rank, setting)
    if rounding is None:
        return None
    premises = Premises(reach, norm, remainder, setting, roundings(polynomial, rank, setting))
    error = (mean_error(epsilon) + rounding) * (1 + UP)
    return Certificate(polynomial, rank, epsilon, rounding, error, premises)


def mean_error(epsilon: float) -> float:
    r""":math:`2(1-\sqrt{1-\epsilon^2})/\epsilon`: how far a mean moves, in units of max|v|."""
    return 2 * epsilon / (1 + math.sqrt(1 - epsilon**2))


def rounding_bound(
    polynomial: ExpPolynomial, norm: float, rank: int, setting: RoundingSetting
) -> float | None:
    r"""Bound on the rounding error of an output, in units of max|v|, or None if there is none.

    Every term :math:`w_\alpha q^\alpha k_j^\alpha v_j` passes at most m roundings: those of its g factors and
    its weight, of the sum over a chunk, of the state's sum over chunks and its decays, and of the sum over
    features. So a sum is off by :math:`\gamma_m = mu/(1-mu)` times the sum of moduli, which by Cauchy-Schwarz
    is at most :math:`\sum_m |a_m| N^m` per key, N bounding :math:`|q||k|`, while the sum of weights is at
    least :math:`(1-\epsilon_P)e^{-B}` per key. With :math:`\kappa` their ratio, numerator and denominator are
    each off by :math:`\gamma\kappa` and their quotient by :math:`2\gamma\kappa/(1-\gamma\kappa)`.

    References:
        Accuracy and Stability of Numerical Algorithms (Higham, 2002), Lemma 3.1 and Sec. 3.1.
    """
    steps = roundings(polynomial, rank, setting)
    unit = torch.finfo(setting.dtype).eps / 2
    moduli = polynomial.magnitude(norm)
    least = (1 - polynomial.error_bound) * math.exp(-polynomial.reach)
    lost = steps * unit / (1 - steps * unit) * moduli / least
    if steps * unit >= 0.5 or lost >= 0.5:
        return None
    rounded = torch.finfo(setting.out).eps if setting.out != setting.dtype else 0.0
    return (2 * lost / (1 - lost) + 4 * unit + rounded) * (1 + UP)


def roundings(polynomial: ExpPolynomial, rank: int, setting: RoundingSetting) -> int:
    """How many roundings a term of a sum passes at most."""
    features = feature_count(rank, polynomial.degree)
    chunk = chunk_length(features)
    near, per_chunk = (chunk, 1) if setting.near is None else (2 * setting.near + 4 * chunk, 4)
    summed = min(features, SUMMED) + features // SUMMED
    return 4 * polynomial.degree + near + per_chunk * (setting.length // chunk + 4) + summed + 8


def rounded_up(reach: float) -> float:
    """Round up to the next power of 1.01, so that few ranges differ."""
    if not 0 < reach < math.inf:
        return STEP**-2000 if reach == 0 else math.inf
    return STEP ** math.ceil(math.log(reach) / math.log(STEP) - 1e-9)
