"""Choose polynomial or exact attention for each head, by certified error and predicted cost."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import torch

from spectrope.core import ConfigError, UnsupportedError
from spectrope.encodings import Context, Encoding, Form, Tag
from spectrope.fast.certificate import UP, Certificate, LogitBounds, RoundingSetting, bound_logits, certify
from spectrope.fast.costs import DEFAULT, CostModel, Shape
from spectrope.fast.entries import RelativeEntries, Unrotated, relative_entries, unrotated
from spectrope.fast.lag_weights import LagWeights, lag_weights, require_consecutive
from spectrope.fast.minimax import HIGHEST
from spectrope.fast.monomials import feature_count
from spectrope.fast.rotation import Rotated, rotated, stretch
from spectrope.fast.transforms import SHARE, LagSizes, lag_sizes, transform_bound

TOLERANCE, MOST_FEATURES = 1e-2, 2**16
# Sums of a polynomial over blocks, by FFT, or by FFT of unrotated vectors.
FastKernel = Literal["polynomial", "fft", "relative"]
KERNELS: tuple[FastKernel, ...] = ("polynomial", "fft", "relative")


@dataclass(frozen=True)
class HeadPlan:
    """The choice for one head, and its reasons.

    Args:
        head: Number of the head, from 0.
        reach_bound: No centred logit is larger in modulus, in logit units; NaN where nothing was measured.
        certificate: The certificate with the fewest features within the tolerance, if any, for the cheaper
            kernel.
        polynomial_cost_estimate: Predicted cost of polynomial attention, where there is a certificate.
        exact_cost_estimate: Predicted cost of exact attention, in the same unit.
        choice: The cheapest kind of attention within the tolerance.
        reason: Why it is exact, or empty.
        kernel: How sums of the certificate's polynomial are taken: over blocks, by FFT, or by FFT of
            unrotated vectors.
    """

    head: int
    reach_bound: float
    certificate: Certificate | None
    polynomial_cost_estimate: float | None
    exact_cost_estimate: float
    choice: Literal["polynomial", "fft", "relative", "exact"]
    reason: str
    kernel: FastKernel = "polynomial"

    @property
    def features(self) -> int | None:
        """Features of each query and key in the certificate's kernel, if there is one."""
        if self.certificate is None:
            return None
        return self.certificate.features if self.kernel == "polynomial" else self.certificate.terms

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
        certified = (h.certificate for h in self.heads if h.choice != "exact")
        return max((c.error_bound for c in certified if c is not None), default=0.0)

    def with_all_fast(self) -> "AttentionPlan":
        """The same plan with polynomial attention wherever it is certified, at any cost."""
        heads = (replace(h, choice=h.kernel, reason="") if h.certificate else h for h in self.heads)
        return replace(self, heads=tuple(heads))


def plan(
    ctx: Context,
    encoding: Encoding,
    tolerance: float = TOLERANCE,
    *,
    causal: bool,
    costs: CostModel = DEFAULT,
    kernels: tuple[FastKernel, ...] = KERNELS,
) -> AttentionPlan:
    """Bound each head's logits and choose between polynomial and exact attention.

    `bound_logits` gives each head's range and `certify` the error of every degree and rank. Of those that
    keep the tolerance, the one with the fewest features is chosen if its predicted cost is below that of
    exact attention, with its sums over blocks, by FFT, or by FFT of unrotated vectors, whichever is predicted
    to cost less. No time is measured, so the choice depends on the inputs alone.

    Args:
        ctx: Queries, keys, positions and mask of the layer.
        encoding: Where it is not of form DOT or DOT_PLUS_LAG, all heads are exact.
        tolerance: Largest error of an output in units of max|v|.
        causal: Whether query i sees key j only if j <= i, by index, the last query being at the last key.
        costs: Constants of the predicted costs, such as `read_costs` reads.
        kernels: Kernels to choose from, beside exact attention.

    Raises:
        ConfigError: If the tolerance is not between 0 and 1.
    """
    return _plan(ctx, encoding, tolerance, causal, costs, served=ctx, kernels=kernels)


def forecast(
    ctx: Context,
    encoding: Encoding,
    length: int,
    tolerance: float = TOLERANCE,
    *,
    causal: bool,
    costs: CostModel = DEFAULT,
    out: torch.dtype | None = None,
) -> tuple[HeadPlan, ...]:
    """Predict what `plan` would choose for one sequence of another length with the same range of logits.

    The equal range is an assumption; a plan for the sequence itself measures the range. Rotations that
    lengthen vectors with the position, such as that of xPos, are taken into account.

    Args:
        ctx: Queries, keys, positions and mask of the layer, on which ranges are measured.
        encoding: As in `plan`.
        length: Queries and keys of the sequence.
        tolerance: As in `plan`.
        causal: As in `plan`.
        costs: As in `plan`.
        out: Dtype that outputs are rounded to (default: that of the keys).

    Raises:
        ConfigError: If the tolerance is not between 0 and 1, or the length not positive.
    """
    if length < 1:
        raise ConfigError(f"length must be at least 1; got {length}.")
    q, k = (x[:1, :, :1].expand(-1, -1, length, -1) for x in (ctx.q, ctx.k))
    pos = torch.arange(length, device=q.device)[None]
    return _plan(ctx, encoding, tolerance, causal, costs, served=Context(q, k, pos, pos), out=out).heads


def _plan(
    ctx: Context,
    encoding: Encoding,
    tolerance: float,
    causal: bool,
    costs: CostModel,
    *,
    served: Context,
    kernels: tuple[FastKernel, ...] = KERNELS,
    out: torch.dtype | None = None,
) -> AttentionPlan:
    """A plan with the ranges of one context for the shapes of another."""
    if not 0 < tolerance < 1:
        raise ConfigError(f"tolerance must be between 0 and 1; got {tolerance}.")
    shape = _shape(served, encoding, causal)
    try:
        if ctx.q.numel() == 0:
            raise UnsupportedError("there are no queries to measure.")
        turned = rotated(ctx, encoding)
        needs = _needs(ctx, turned, encoding, causal, served, kernels, out or turned.k.dtype)
    except UnsupportedError as refusal:
        exact = HeadPlan(0, math.nan, None, None, costs.exact(shape), "exact", str(refusal))
        heads = tuple(replace(exact, head=head) for head in range(ctx.q.shape[1]))
        return AttentionPlan(tolerance, causal, heads, costs)
    bounds = bound_logits(turned.q, turned.k, turned.keys, negligible=tolerance)
    if served is not ctx and encoding.turns:
        bounds = bounds.stretched(stretch(encoding, served) / stretch(encoding, ctx))
    heads = tuple(_head_plan(bounds, head, needs, tolerance, shape, costs) for head in range(ctx.q.shape[1]))
    return AttentionPlan(tolerance, causal, heads, costs, bounds, needs.lags)


@dataclass(frozen=True)
class _Needs:
    """What the certificates of a layer need beside bounds on its logits.

    Args:
        blocked: Lengths and dtypes of sums over blocks; None where they do not serve.
        lags: Weights of lags for sums over blocks, where there is a bias.
        refusal: Why sums over blocks do not serve, or empty.
        transformed: Lengths and dtypes of sums by FFT; None where these are not asked for.
        sizes: Of the weights of lags, for sums by FFT.
        relative: What sums by FFT of unrotated vectors need; None where these do not serve.
        out: Dtype of the outputs.
    """

    blocked: RoundingSetting | None
    lags: LagWeights | None
    refusal: str
    transformed: RoundingSetting | None
    sizes: LagSizes
    relative: "_Relative | None"
    out: torch.dtype


@dataclass(frozen=True)
class _Relative:
    """What certificates of `relative_fft` need.

    Args:
        vectors: Queries and keys of which norms are taken.
        served: The context whose lags are served.
        encoding: The encoding of the layer.
        causal: Whether attention is causal.
        setting: Lengths and dtypes.
        sizes: Of the weights of lags.
        alone: Whether there is no other fast kernel to choose.
    """

    vectors: Unrotated
    served: Context
    encoding: Encoding
    causal: bool
    setting: RoundingSetting
    sizes: LagSizes
    alone: bool

    @cached_property
    def entries(self) -> RelativeEntries | None:
        """Entries of the relative rotation; None if the encoding has none."""
        try:
            return relative_entries(self.served, self.encoding, self.causal)
        except UnsupportedError:
            return None

    def option(
        self, head: int, tolerance: float, shape: Shape, costs: CostModel, most: float
    ) -> Iterator[tuple[float, FastKernel, Certificate]]:
        """The kernel with its predicted cost, if it keeps the tolerance on one head.

        Entries take memory for every lag, so where there are other kernels they are made only if a rotation
        with an entry of modulus 1 per coordinate, which has fewer terms, would cost less than `most`.
        """
        norm, dim = self.vectors.norm(head), self.vectors.q.shape[-1]
        least = relative_certificate(norm, dim, tolerance, self.setting, self.sizes)
        cheap = least is not None and (self.alone or costs.relative(shape, least.terms) < most)
        if not cheap or self.entries is None:
            return
        bound, variables = norm * self.entries.gain(head, dim), len(self.entries.query_axes)
        found = relative_certificate(bound, variables, tolerance, self.setting, self.sizes)
        if found is not None:
            yield costs.relative(shape, found.terms), "relative", found


def _needs(
    ctx: Context,
    turned: Rotated,
    encoding: Encoding,
    causal: bool,
    served: Context,
    kernels: tuple[FastKernel, ...],
    out: torch.dtype,
) -> _Needs:
    """What the certificates of a layer need.

    Raises:
        UnsupportedError: If no kernel serves its encoding.
    """
    lags, refusal = None, ""
    if encoding.form is Form.DOT_PLUS_LAG:
        require_consecutive(ctx)
        try:
            lags = lag_weights(served, encoding, causal)
        except UnsupportedError as error:
            refusal = str(error)
            if not {"fft", "relative"} & set(kernels):
                raise
    dtype = torch.float64 if turned.q.dtype == torch.float64 else torch.float32
    length = max(served.q.shape[-2], served.k.shape[-2])
    blocked = RoundingSetting(length, turned.q.shape[-1], dtype, out)
    transformed = replace(blocked, dtype=torch.float64, inputs=dtype) if "fft" in kernels else None
    if lags is not None:
        blocked = replace(blocked, deviation=lags.deviation, near=max(lags.starts))
    serves = "polynomial" in kernels and not refusal
    sizes = lag_sizes(served, encoding, causal)
    relative = None
    if "relative" in kernels and encoding.turns and Tag.SHIFT_INVARIANT in encoding.tags:
        setting = replace(blocked, dtype=torch.float64, inputs=dtype, deviation=0.0, near=None)
        alone = kernels == ("relative",)
        relative = _Relative(unrotated(ctx, encoding), served, encoding, causal, setting, sizes, alone)
    return _Needs(blocked if serves else None, lags, refusal, transformed, sizes, relative, out)


def _shape(ctx: Context, encoding: Encoding, causal: bool) -> Shape:
    batch, _, n_queries, dim = ctx.q.shape
    itemsize = 8 if ctx.q.dtype == torch.float64 else 4
    return Shape(batch, n_queries, ctx.k.shape[-2], dim, causal, encoding.form is not Form.DOT, itemsize)


def _head_plan(
    bounds: LogitBounds, head: int, needs: _Needs, tolerance: float, shape: Shape, costs: CostModel
) -> HeadPlan:
    """The cheapest kernel that keeps the tolerance on one head."""
    reach, exact = float(bounds.reach_bound[head]), costs.exact(shape)
    options = list(_options(bounds, head, needs, tolerance, shape, costs))
    if needs.relative is not None:
        most = min([exact, *(cost for cost, _, _ in options)])
        options.extend(needs.relative.option(head, tolerance, shape, costs, most))
    if not options:
        reason = (
            f"rounding outputs to {str(needs.out).removeprefix('torch.')} alone may cost {tolerance:g}"
            if torch.finfo(needs.out).eps >= tolerance
            else f"no degree up to {HIGHEST} with at most {MOST_FEATURES} features keeps {tolerance:g} "
            f"on logits up to {reach:.3g}"
        )
        reason = f"{needs.refusal.rstrip('.')}; by FFT, {reason}" if needs.refusal else reason
        return HeadPlan(head, reach, None, None, exact, "exact", reason)
    cost, kernel, certificate = min(options, key=lambda option: option[0])
    planned = HeadPlan(head, certificate.premises.reach, certificate, cost, exact, kernel, "", kernel)
    if cost < exact:
        return planned
    reason = f"{planned.features} features are predicted to cost more than {shape.n_keys} keys"
    return replace(planned, choice="exact", reason=reason)


def _options(
    bounds: LogitBounds, head: int, needs: _Needs, tolerance: float, shape: Shape, costs: CostModel
) -> Iterator[tuple[float, FastKernel, Certificate]]:
    """Kernels that keep the tolerance on one head, with their predicted costs."""
    if needs.blocked is not None:
        found = fewest_features(bounds, head, tolerance, needs.blocked)
        starts = (0, 0) if needs.lags is None else needs.lags.starts
        if found is not None:
            tailed = replace(shape, starts=starts)
            yield costs.polynomial(tailed, found.rank, found.polynomial.degree), "polynomial", found
    if needs.transformed is not None:
        found = fft_certificate(bounds, head, tolerance, needs.transformed, needs.sizes)
        if found is not None:
            yield costs.fft(shape, found.terms), "fft", found


def fft_certificate(
    bounds: LogitBounds, head: int, tolerance: float, setting: RoundingSetting, lags: LagSizes
) -> Certificate | None:
    """The certificate of the fewest features that keep the tolerance by FFT, if there is one."""
    found = fewest_features(bounds, head, (1 - SHARE) * tolerance, setting)
    if found is None:
        return None
    lost = transform_bound(found, float(bounds.norm_bound[head]), lags)
    if lost > SHARE * tolerance:
        return None
    rounding, error = ((bound + lost) * (1 + UP) for bound in (found.rounding_bound, found.error_bound))
    premises = replace(found.premises, lags=lags)
    return replace(found, rounding_bound=rounding, error_bound=error, premises=premises)


def relative_certificate(
    norm: float, variables: int, tolerance: float, setting: RoundingSetting, lags: LagSizes
) -> Certificate | None:
    """The certificate of the fewest terms that keep the tolerance by FFT of unrotated vectors, if any do.

    Keys are not centred: the mean of rotated keys is none of unrotated ones.

    Args:
        norm: No sum of moduli of a logit's products is larger.
        variables: Products of an entry and two coordinates that add up to a logit.
        tolerance: Largest error of an output, in units of max|v|.
        setting: Lengths and dtypes.
        lags: Sizes of the weights of lags.
    """
    remainder = torch.full((3, 1, variables + 1), torch.inf, dtype=torch.float64)
    remainder[..., -1] = 0.0
    norms = torch.tensor([norm], dtype=torch.float64)
    nowhere = norms.new_zeros(1, 1, 1, variables)
    bounds = LogitBounds(nowhere, norms, norms, norms.new_zeros(3, 1, variables, variables), remainder)
    return fft_certificate(bounds, 0, tolerance, replace(setting, dim=variables), lags)


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
