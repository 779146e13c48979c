"""Which heads get polynomial attention: what is certain of its error, and likely of its speed."""

import math
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from spectrope.core.errors import ConfigError, UnsupportedError
from spectrope.encodings.base import Context, Encoding, Form
from spectrope.fast.calibration import Cost, exact_seconds, fast_seconds
from spectrope.fast.certificate import Certificate, Geometry, Setting, certify, measure
from spectrope.fast.features import feature_count
from spectrope.fast.lag_weights import LagWeights, lag_weights, require_consecutive
from spectrope.fast.minimax import HIGHEST

FORMS = frozenset({Form.DOT, Form.DOT_PLUS_LAG})
TOLERANCE, MOST_FEATURES = 1e-2, 2**16


@dataclass(frozen=True)
class HeadPlan:
    """What is known of one head, and what it gets.

    Args:
        head: Its number.
        reach_bound: No centred logit is larger in modulus, in logit units; NaN where nothing was measured.
        certificate: That of the fewest features which keep the tolerance, if any do.
        fast_seconds_estimate: Predicted time of polynomial attention, where there is a certificate.
        exact_seconds_estimate: Predicted time of exact attention.
        choice: What is faster, of what keeps the tolerance.
        reason: Why it is exact, or empty.
    """

    head: int
    reach_bound: float
    certificate: Certificate | None
    fast_seconds_estimate: float | None
    exact_seconds_estimate: float
    choice: Literal["polynomial", "exact"]
    reason: str

    @property
    def speedup_estimate(self) -> float | None:
        """Predicted time of exact attention over that of polynomial attention."""
        fast = self.fast_seconds_estimate
        return None if fast is None else self.exact_seconds_estimate / fast


@dataclass(frozen=True)
class Plan:
    """How one layer's attention is to be computed; its bounds hold for the tensors that it was made from.

    Args:
        tolerance: Largest certified error of an output, in units of max|v|.
        causal: Whether queries see the past alone.
        heads: What each head gets.
        geometry: Centres and bases by which queries and keys are moved, where any head can be fast.
        lags: Weights of lags, where the encoding has them.
    """

    tolerance: float
    causal: bool
    heads: tuple[HeadPlan, ...]
    geometry: Geometry | None = None
    lags: LagWeights | None = None

    @property
    def error_bound(self) -> float:
        """Largest certified error of an output of a head that is not exact, in units of max|v|."""
        fast = [h.certificate.error_bound for h in self.heads if h.choice == "polynomial" and h.certificate]
        return max(fast, default=0.0)

    def with_all_fast(self) -> "Plan":
        """The same plan with polynomial attention wherever it is certified, whether it pays or not."""
        heads = (replace(h, choice="polynomial", reason="") if h.certificate else h for h in self.heads)
        return replace(self, heads=tuple(heads))


@dataclass(frozen=True)
class Rotated:
    """Queries, scaled, and keys as they enter products, and which keys may be seen."""

    q: Float[Tensor, "b h i d"]
    k: Float[Tensor, "b h j d"]
    keys: Bool[Tensor, "b j"] | None


def rotated(ctx: Context, encoding: Encoding) -> Rotated:
    """What polynomial attention starts from.

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


def plan(ctx: Context, encoding: Encoding, tolerance: float = TOLERANCE, *, causal: bool) -> Plan:
    """Measure each head's logits and choose between polynomial and exact attention.

    The bounds of `measure` give each head's range and `certify` the error of every degree and rank. Of those
    that keep the tolerance, the one with the fewest features is compared with exact attention by what both
    take on this machine, measured once.

    Args:
        ctx: Queries, keys, positions and mask of the layer.
        encoding: Where it is not of form DOT or DOT_PLUS_LAG, all heads are exact.
        tolerance: Largest error of an output in units of max|v|.
        causal: Whether query i sees key j only if j <= i, by index, the last query being at the last key.

    Raises:
        ConfigError: If the tolerance is not between 0 and 1.
    """
    return _plan(ctx, encoding, tolerance, causal, ctx)


def forecast(
    ctx: Context, encoding: Encoding, length: int, tolerance: float = TOLERANCE, *, causal: bool
) -> tuple[HeadPlan, ...]:
    """What `plan` would choose for one sequence of another length, if logits reach as far there as here.

    That they do is an assumption; a plan for the sequence itself measures it.

    Args:
        ctx: Queries, keys, positions and mask of the layer, on which ranges are measured.
        encoding: As in `plan`.
        length: Queries and keys of the sequence.
        tolerance: As in `plan`.
        causal: As in `plan`.

    Raises:
        ConfigError: If the tolerance is not between 0 and 1, or the length not positive.
    """
    if length < 1:
        raise ConfigError(f"length must be at least 1; got {length}.")
    q, k = (x[:1, :, :1].expand(-1, -1, length, -1) for x in (ctx.q, ctx.k))
    pos = torch.arange(length, device=q.device)[None]
    return _plan(ctx, encoding, tolerance, causal, Context(q, k, pos, pos)).heads


def _plan(ctx: Context, encoding: Encoding, tolerance: float, causal: bool, served: Context) -> Plan:
    """A plan with the ranges of one context for the shapes of another."""
    if not 0 < tolerance < 1:
        raise ConfigError(f"tolerance must be between 0 and 1; got {tolerance}.")
    length = served.k.shape[-2]
    cost = Cost(served.q.shape, length, causal, encoding.form is not Form.DOT, ctx.q.device)
    try:
        if ctx.q.numel() == 0:
            raise UnsupportedError("there are no queries to measure.")
        turned, lags = rotated(ctx, encoding), None
        if encoding.form is Form.DOT_PLUS_LAG:
            require_consecutive(ctx)
            lags = lag_weights(served, encoding, causal)
    except UnsupportedError as refusal:
        unknown = HeadPlan(0, math.nan, None, None, exact_seconds(cost), "exact", str(refusal))
        heads = tuple(replace(unknown, head=head) for head in range(ctx.q.shape[1]))
        return Plan(tolerance, causal, heads)
    geometry = measure(turned.q, turned.k, turned.keys, negligible=tolerance)
    setting = _setting(turned, lags, max(length, served.q.shape[-2]))
    chosen = (_head_plan(head, geometry, tolerance, setting, cost) for head in range(ctx.q.shape[1]))
    return Plan(tolerance, causal, tuple(chosen), geometry, lags)


def _setting(turned: Rotated, lags: LagWeights | None, length: int) -> Setting:
    dtype = torch.float64 if turned.q.dtype == torch.float64 else torch.float32
    plain = Setting(length, turned.q.shape[-1], dtype, turned.k.dtype)
    if lags is None:
        return plain
    return replace(plain, deviation=lags.deviation, near=max(lags.past.start, lags.future.start))


def _head_plan(head: int, geometry: Geometry, tolerance: float, setting: Setting, cost: Cost) -> HeadPlan:
    reach, exact = float(geometry.reach_bound[head]), exact_seconds(cost)
    found = cheapest(geometry, head, tolerance, setting)
    if found is None:
        reason = (
            f"no degree up to {HIGHEST} with at most {MOST_FEATURES} features keeps {tolerance:g} "
            f"on logits up to {reach:.3g}"
        )
        return HeadPlan(head, reach, None, None, exact, "exact", reason)
    fast = fast_seconds(cost, found.rank, found.polynomial.degree)
    if fast < exact:
        return HeadPlan(head, reach, found, fast, exact, "polynomial", "")
    reason = f"{found.features} features take longer than {setting.length} keys"
    return HeadPlan(head, reach, found, fast, exact, "exact", reason)


def cheapest(geometry: Geometry, head: int, tolerance: float, setting: Setting) -> Certificate | None:
    """The certificate of the fewest features that keep the tolerance, if there is one."""
    reach, norm = float(geometry.reach_bound[head]), float(geometry.norm_bound[head])
    left = geometry.left_bounds[:, head].amin(0).tolist()
    least = next((rank for rank in range(1, setting.dim) if left[rank] <= tolerance), setting.dim)
    best: Certificate | None = None
    for degree in range(1, HIGHEST + 1):
        allowed = MOST_FEATURES if best is None else best.features - 1
        low, high = least, setting.dim
        while low <= high:  # errors fall with the rank
            rank = (low + high) // 2
            fits = feature_count(rank, degree) <= allowed
            found = certify(reach, norm, left[rank], rank, degree, setting) if fits else None
            if found is not None and found.error_bound <= tolerance:
                best, allowed, high = found, found.features - 1, rank - 1
            elif fits:
                low = rank + 1
            else:
                high = rank - 1
    return best
