"""Which heads get polynomial attention: by its certified error and its predicted cost."""

import math
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from spectrope.core import ConfigError, UnsupportedError
from spectrope.encodings import Context, Encoding, Form
from spectrope.fast.certificate import Certificate, LogitBounds, RoundingSetting, bound_logits, certify
from spectrope.fast.costs import DEFAULT, CostModel, Shape
from spectrope.fast.lag_weights import LagWeights, lag_weights, require_consecutive
from spectrope.fast.minimax import HIGHEST
from spectrope.fast.monomials import feature_count

FORMS = frozenset({Form.DOT, Form.DOT_PLUS_LAG})
TOLERANCE, MOST_FEATURES = 1e-2, 2**16


@dataclass(frozen=True)
class HeadPlan:
    """The choice for one head, and its reasons.

    Args:
        head: Number of the head, from 0.
        reach_bound: No centred logit is larger in modulus, in logit units; NaN where nothing was measured.
        certificate: That of the fewest features which keep the tolerance, if any do.
        polynomial_cost_estimate: Predicted cost of polynomial attention, where there is a certificate.
        exact_cost_estimate: Predicted cost of exact attention, in the same unit.
        choice: The cheaper one of those that keep the tolerance.
        reason: Why it is exact, or empty.
    """

    head: int
    reach_bound: float
    certificate: Certificate | None
    polynomial_cost_estimate: float | None
    exact_cost_estimate: float
    choice: Literal["polynomial", "exact"]
    reason: str

    @property
    def speedup_estimate(self) -> float | None:
        """Predicted cost of exact attention over that of polynomial attention."""
        cost = self.polynomial_cost_estimate
        return None if cost is None else self.exact_cost_estimate / cost


@dataclass(frozen=True)
class AttentionPlan:
    """How to compute one layer's attention; its bounds hold for the tensors that it was made from.

    Args:
        tolerance: Largest certified error of an output, in units of max|v|.
        causal: Whether attention is causal.
        heads: The choice for each head.
        costs: Constants by which costs were predicted.
        bounds: Bounds on the logits, where any head can be polynomial.
        lags: Weights of lags, where the encoding has them.
    """

    tolerance: float
    causal: bool
    heads: tuple[HeadPlan, ...]
    costs: CostModel = DEFAULT
    bounds: LogitBounds | None = None
    lags: LagWeights | None = None

    @property
    def error_bound(self) -> float:
        """Largest certified error of an output of a head that is not exact, in units of max|v|."""
        certified = (h.certificate for h in self.heads if h.choice == "polynomial")
        return max((c.error_bound for c in certified if c is not None), default=0.0)

    def with_all_fast(self) -> "AttentionPlan":
        """The same plan with polynomial attention wherever it is certified, at any cost."""
        heads = (replace(h, choice="polynomial", reason="") if h.certificate else h for h in self.heads)
        return replace(self, heads=tuple(heads))


@dataclass(frozen=True)
class Rotated:
    """Scaled queries and keys as they enter products, and the keys that may be seen."""

    q: Float[Tensor, "b h i d"]
    k: Float[Tensor, "b h j d"]
    keys: Bool[Tensor, "b j"] | None


def rotated(ctx: Context, encoding: Encoding) -> Rotated:
    """Rotated queries and keys, and the mask of keys.

    Raises:
        UnsupportedError: If the encoding is of another form than DOT and DOT_PLUS_LAG, or the mask hides
            pairs rather than keys.
    """
    if encoding.form not in FORMS:
        raise UnsupportedError(
            f"fast attention computes forms {' and '.join(sorted(f.name for f in FORMS))}; "
            f"{type(encoding).__name__} is of form {encoding.form.name}."
        )
    q = encoding.rotate(encoding.scaled(ctx.q) * ctx.scale, ctx.q_pos, "query")
    return Rotated(q, encoding.rotate(ctx.k, ctx.k_pos, "key"), key_mask(ctx))


def key_mask(ctx: Context) -> Bool[Tensor, "b j"] | None:
    """The context's mask as one of keys alone.

    Raises:
        UnsupportedError: If it depends on heads or queries.
    """
    if ctx.mask is None:
        return None
    mask = ctx.mask[(None,) * (4 - ctx.mask.ndim)]
    if mask.shape[1:3] != (1, 1):
        raise UnsupportedError(
            "fast attention takes a mask of keys alone, of shape (b, 1, 1, j); "
            f"this one has shape {tuple(mask.shape)}."
        )
    return mask[:, 0, 0].expand(len(ctx.q), ctx.k.shape[-2])


def plan(
    ctx: Context,
    encoding: Encoding,
    tolerance: float = TOLERANCE,
    *,
    causal: bool,
    costs: CostModel = DEFAULT,
) -> AttentionPlan:
    """Bound each head's logits and choose between polynomial and exact attention.

    `bound_logits` gives each head's range and `certify` the error of every degree and rank. Of those that
    keep the tolerance, the one with the fewest features is chosen if its predicted cost is below that of
    exact attention. No time is measured, so the choice depends on the inputs alone.

    Args:
        ctx: Queries, keys, positions and mask of the layer.
        encoding: Where it is not of form DOT or DOT_PLUS_LAG, all heads are exact.
        tolerance: Largest error of an output in units of max|v|.
        causal: Whether query i sees key j only if j <= i, by index, the last query being at the last key.
        costs: Constants of the predicted costs, such as `read_costs` reads.

    Raises:
        ConfigError: If the tolerance is not between 0 and 1.
    """
    return _plan(ctx, encoding, tolerance, causal, costs, served=ctx)


def forecast(
    ctx: Context,
    encoding: Encoding,
    length: int,
    tolerance: float = TOLERANCE,
    *,
    causal: bool,
    costs: CostModel = DEFAULT,
) -> tuple[HeadPlan, ...]:
    """What `plan` would choose for one sequence of another length, if logits reach as far there as here.

    That they do is an assumption; a plan for the sequence itself measures it.

    Args:
        ctx: Queries, keys, positions and mask of the layer, on which ranges are measured.
        encoding: As in `plan`.
        length: Queries and keys of the sequence.
        tolerance: As in `plan`.
        causal: As in `plan`.
        costs: As in `plan`.

    Raises:
        ConfigError: If the tolerance is not between 0 and 1, or the length not positive.
    """
    if length < 1:
        raise ConfigError(f"length must be at least 1; got {length}.")
    q, k = (x[:1, :, :1].expand(-1, -1, length, -1) for x in (ctx.q, ctx.k))
    pos = torch.arange(length, device=q.device)[None]
    return _plan(ctx, encoding, tolerance, causal, costs, served=Context(q, k, pos, pos)).heads


def _plan(
    ctx: Context, encoding: Encoding, tolerance: float, causal: bool, costs: CostModel, *, served: Context
) -> AttentionPlan:
    """A plan with the ranges of one context for the shapes of another."""
    if not 0 < tolerance < 1:
        raise ConfigError(f"tolerance must be between 0 and 1; got {tolerance}.")
    shape = _shape(served, encoding, causal)
    try:
        if ctx.q.numel() == 0:
            raise UnsupportedError("there are no queries to measure.")
        turned, lags = rotated(ctx, encoding), None
        if encoding.form is Form.DOT_PLUS_LAG:
            require_consecutive(ctx)
            lags = lag_weights(served, encoding, causal)
            shape = replace(shape, starts=lags.starts)
    except UnsupportedError as refusal:
        exact = HeadPlan(0, math.nan, None, None, costs.exact(shape), "exact", str(refusal))
        heads = tuple(replace(exact, head=head) for head in range(ctx.q.shape[1]))
        return AttentionPlan(tolerance, causal, heads, costs)
    bounds = bound_logits(turned.q, turned.k, turned.keys, negligible=tolerance)
    setting = _setting(turned, lags, max(shape.n_queries, shape.n_keys))
    certificates = (fewest_features(bounds, head, tolerance, setting) for head in range(ctx.q.shape[1]))
    reaches = bounds.reach_bound.tolist()
    heads = tuple(
        _head_plan(head, reaches[head], certificate, tolerance, shape, costs)
        for head, certificate in enumerate(certificates)
    )
    return AttentionPlan(tolerance, causal, heads, costs, bounds, lags)


def _shape(ctx: Context, encoding: Encoding, causal: bool) -> Shape:
    batch, _, n_queries, dim = ctx.q.shape
    itemsize = 8 if ctx.q.dtype == torch.float64 else 4
    return Shape(batch, n_queries, ctx.k.shape[-2], dim, causal, encoding.form is not Form.DOT, itemsize)


def _setting(turned: Rotated, lags: LagWeights | None, length: int) -> RoundingSetting:
    dtype = torch.float64 if turned.q.dtype == torch.float64 else torch.float32
    plain = RoundingSetting(length, turned.q.shape[-1], dtype, turned.k.dtype)
    return plain if lags is None else replace(plain, deviation=lags.deviation, near=max(lags.starts))


def _head_plan(
    head: int,
    reach: float,
    certificate: Certificate | None,
    tolerance: float,
    shape: Shape,
    costs: CostModel,
) -> HeadPlan:
    exact = costs.exact(shape)
    if certificate is None:
        reason = (
            f"no degree up to {HIGHEST} with at most {MOST_FEATURES} features keeps {tolerance:g} "
            f"on logits up to {reach:.3g}"
        )
        return HeadPlan(head, reach, None, None, exact, "exact", reason)
    cost = costs.polynomial(shape, certificate.rank, certificate.polynomial.degree)
    if cost < exact:
        return HeadPlan(head, reach, certificate, cost, exact, "polynomial", "")
    reason = f"{certificate.features} features are predicted to cost more than {shape.n_keys} keys"
    return HeadPlan(head, reach, certificate, cost, exact, "exact", reason)


def fewest_features(
    bounds: LogitBounds, head: int, tolerance: float, setting: RoundingSetting
) -> Certificate | None:
    """The certificate of the fewest features that keep the tolerance, if there is one."""
    reach, norm = float(bounds.reach_bound[head]), float(bounds.norm_bound[head])
    remainders = bounds.remainder_bounds[:, head].amin(0).tolist()
    least = next((rank for rank in range(1, setting.dim) if remainders[rank] <= tolerance), setting.dim)
    best: Certificate | None = None
    for degree in range(1, HIGHEST + 1):
        allowed = MOST_FEATURES if best is None else best.features - 1
        low, high = least, setting.dim
        while low <= high:  # errors fall with the rank
            rank = (low + high) // 2
            fits = feature_count(rank, degree) <= allowed
            tried = certify(reach, norm, remainders[rank], rank, degree, setting) if fits else None
            if tried is not None and tried.error_bound <= tolerance:
                best, allowed, high = tried, tried.features - 1, rank - 1
            elif fits:
                low = rank + 1
            else:
                high = rank - 1
    return best
