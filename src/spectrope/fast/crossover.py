"""Crossover of fast and exact attention: time and memory by length, error by degree."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from spectrope.attention import Allocations, additive_bias, attention
from spectrope.core import ConfigError, UnsupportedError, require, torch_stream
from spectrope.encodings import ENCODINGS, Context, Encoding, Form
from spectrope.fast.certificate import RoundingSetting, certify
from spectrope.fast.chunkwise import PolynomialWeights
from spectrope.fast.clock import own_seconds
from spectrope.fast.minimax import exp_polynomial
from spectrope.fast.monomials import feature_count
from spectrope.fast.planning import MOST_FEATURES, plan, rotated
from spectrope.fast.polynomial import planned_attention, polynomial_attention

DEGREES, SAMPLED = range(1, 9), 512  # Tokens on which the error of a degree is measured.
REPEATS = 2
FAST = (
    "polynomial",
    "toeplitz_fft",
    "relative_fft",
)  # Sums over blocks; FFT of rotated, of unrotated vectors.


@dataclass(frozen=True, kw_only=True)
class SyntheticHead:
    """A head on random inputs whose logits reach a given range, with rotary encoding or a lag bias.

    Args:
        head_dim: Width of queries, keys and values, even.
        reach: Largest modulus of a logit by the norms of queries and keys.
        tolerance: Largest certified error, in units of max|v|.
        causal: Whether attention is causal.
        bias: A registered encoding of form DOT_PLUS_LAG; None for rotation.
    """

    head_dim: int = 16
    reach: float = 0.5
    tolerance: float = 1e-2
    causal: bool = True
    bias: str | None = None

    def __post_init__(self) -> None:
        even = self.head_dim >= 2 and self.head_dim % 2 == 0
        require(even, self, "head_dim", "even and at least 2")
        require(0 < self.reach <= 12, self, "reach", "positive and at most 12")
        require(0 < self.tolerance < 1, self, "tolerance", "between 0 and 1")
        if self.bias is not None:
            of_lag = ENCODINGS[self.bias].form is Form.DOT_PLUS_LAG
            require(of_lag, self, "bias", "an encoding that adds a bias of the lag")

    def encoding(self, n: int, device: torch.device) -> Encoding:
        """The encoding, as initialised, for sequences of some length; nothing in it is trained."""
        sizes = {"d_model": self.head_dim, "n_heads": 1, "head_dim": self.head_dim}
        config = ENCODINGS.config(self.bias or "rope")()
        built = config.fitted(**sizes, max_length=n, causal=self.causal).build()
        return built.to(device).requires_grad_(False)

    def inputs(self, n: int, device: torch.device) -> tuple[Context, Tensor, Encoding]:
        """Random queries and keys, values, and the encoding."""
        draw = torch_stream(0, "crossover", n)
        q, k, v = (torch.randn(1, 1, n, self.head_dim, generator=draw).to(device) for _ in range(3))
        longest = float(q.norm(dim=-1).max() * k.norm(dim=-1).max())
        q *= 0.99 * self.reach * math.sqrt(self.head_dim) / longest
        pos = torch.arange(n, device=device)[None]
        return Context(q, k, pos, pos), v, self.encoding(n, device)


@dataclass(frozen=True)
class KernelTiming:
    """One kernel at one length.

    Args:
        kernel: The implementation: one of `FAST`, or "exact".
        direction: "forward", or "both": forward and backward.
        length: Tokens.
        seconds: Least of a few runs.
        mib: Peak memory of the tensors that one run allocates, without the kernels' own scratch memory.
    """

    kernel: str
    direction: str
    length: int
    seconds: float
    mib: float


@dataclass(frozen=True)
class DegreeError:
    """Error of polynomial attention of one degree, in units of max|v|.

    Args:
        degree: Of the polynomial.
        features: Of each query and key.
        error_bound: Certified, at the longest length asked for; None where nothing is certain.
        error: Measured on random queries, keys and values against exact attention in float64.
    """

    degree: int
    features: int
    error_bound: float | None
    error: float


@dataclass(frozen=True)
class KernelRefusal:
    """Why a kernel cannot compute a head from some length on."""

    kernel: str
    length: int
    reason: str


def timings(
    head: SyntheticHead, lengths: Sequence[int], device: torch.device, kernels: Sequence[str]
) -> Iterator[KernelTiming | KernelRefusal]:
    """Time kernels at every length, forward and with the backward pass.

    The plan of `polynomial` is made in advance and its time is not counted. The FFT kernels make their own
    plan in every call, for a tolerance of 1e-2. A kernel that refuses a length is not tried at greater
    lengths.

    Args:
        head: What is computed.
        lengths: Tokens, in ascending order.
        device: Device to compute on.
        kernels: Names from `FAST`, and "exact".
    """
    serving = list(kernels)
    for n in lengths:
        ctx, v, encoding = head.inputs(n, device)
        leaves = [x.requires_grad_() for x in (ctx.q, ctx.k, v)]
        for kernel in tuple(serving):
            try:
                forward = _call(kernel, ctx, v, encoding, head)
                yield from _timed(kernel, n, forward, leaves, device)
            except (ConfigError, UnsupportedError) as refusal:
                serving.remove(kernel)
                yield KernelRefusal(kernel, n, str(refusal).rstrip("."))


def _timed(
    kernel: str, n: int, forward: Callable[[], Tensor], leaves: Sequence[Tensor], device: torch.device
) -> Iterator[KernelTiming]:
    for direction, call in (("forward", _without_grad(forward)), ("both", _with_grad(forward, leaves))):
        with Allocations() as seen:
            call()
        least = min(own_seconds(call, device) for _ in range(REPEATS))
        yield KernelTiming(kernel, direction, n, least, seen.peak / 2**20)


def _call(
    kernel: str, ctx: Context, v: Tensor, encoding: Encoding, head: SyntheticHead
) -> Callable[[], Tensor]:
    if kernel == "exact":
        return _exact(ctx, v, encoding, head.causal)
    if kernel == "polynomial":
        return _polynomial(ctx, v, encoding, head)
    return lambda: attention(ctx, v, encoding, causal=head.causal, impl=kernel)


def _polynomial(ctx: Context, v: Tensor, encoding: Encoding, head: SyntheticHead) -> Callable[[], Tensor]:
    made = plan(ctx, encoding, head.tolerance, causal=head.causal, kernels=("polynomial",)).with_all_fast()
    if made.heads[0].certificate is None:
        raise ConfigError(f"nothing to time at {ctx.q.shape[-2]:,} tokens: {made.heads[0].reason}.")
    return lambda: planned_attention(ctx, v, encoding, made)


def _exact(ctx: Context, v: Tensor, encoding: Encoding, causal: bool) -> Callable[[], Tensor]:
    """Torch's fused kernel on rotated queries and keys, with a bias as a dense mask."""

    def call() -> Tensor:
        q = encoding.rotate(encoding.scaled(ctx.q), ctx.q_pos, "query")
        k = encoding.rotate(ctx.k, ctx.k_pos, "key")
        bias, is_causal = additive_bias(ctx, encoding, causal)
        bias = None if bias is None else bias.to(q.dtype)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, is_causal=is_causal)

    return call


def _without_grad(forward: Callable[[], Tensor]) -> Callable[[], object]:
    def call() -> object:
        with torch.no_grad():
            return forward()

    return call


def _with_grad(forward: Callable[[], Tensor], leaves: Sequence[Tensor]) -> Callable[[], object]:
    return lambda: torch.autograd.grad(forward().sum(), leaves)


def crossover(timings: Sequence[KernelTiming], kernel: str, direction: str) -> float | None:
    """Length from which a kernel is faster than the exact one, by log-log interpolation between measured
    lengths.

    None if it is slower at the longest length; the shortest length if it is faster at all of them.
    """
    times = {(t.kernel, t.length): t.seconds for t in timings if t.direction == direction}
    lengths = sorted(length for name, length in times if name == kernel)
    gains = [math.log(times["exact", n] / times[kernel, n]) for n in lengths]
    if gains[-1] <= 0:
        return None
    last = max((i for i, gain in enumerate(gains) if gain <= 0), default=-1)
    if last < 0:
        return float(lengths[0])
    share = -gains[last] / (gains[last + 1] - gains[last])
    return lengths[last] * (lengths[last + 1] / lengths[last]) ** share


def exponent(
    timings: Sequence[KernelTiming], kernel: str, direction: str, quantity: str = "seconds"
) -> float | None:
    """Exponent with which a kernel's time ("seconds") or memory ("mib") grows with the length, by least
    squares.

    None where there are fewer than two lengths.
    """
    some = [t for t in timings if (t.kernel, t.direction) == (kernel, direction)]
    if len(some) < 2:
        return None
    x = torch.tensor([t.length for t in some], dtype=torch.float64).log()
    y = torch.tensor([getattr(t, quantity) for t in some], dtype=torch.float64).log()
    x, y = x - x.mean(), y - y.mean()
    return float((x @ y) / (x @ x))


def degree_errors(head: SyntheticHead, length: int, device: torch.device) -> list[DegreeError]:
    """Certified and measured errors of every degree up to 8 on the range of the head.

    Args:
        head: Its range, width and mask.
        length: For which the error is certified; it is measured at 512 tokens.
        device: Device to compute on.
    """
    ctx, v, encoding = replace(head, bias=None).inputs(SAMPLED, device)
    turned = rotated(ctx, encoding)
    pairs = turned.q.double() @ turned.k.double().mT
    if head.causal:
        pairs = pairs.masked_fill(torch.ones_like(pairs).triu(1) > 0, -torch.inf)
    exact = pairs.softmax(-1) @ v.double()
    setting = RoundingSetting(length, head.head_dim, torch.float32, torch.float32)
    errors = []
    for degree in DEGREES:
        if feature_count(head.head_dim, degree) > MOST_FEATURES:
            break
        proof = certify(head.reach, head.reach, 0.0, head.head_dim, degree, setting)
        polynomial = exp_polynomial(degree, -head.reach, head.reach) if proof is None else proof.polynomial
        weights = PolynomialWeights(polynomial.coefficients, head.causal)
        out = polynomial_attention(turned.q, turned.k, v, weights).double()
        error = float((out - exact).abs().max() / v.abs().max())
        features = feature_count(head.head_dim, degree)
        errors.append(DegreeError(degree, features, None if proof is None else proof.error_bound, error))
    return errors
