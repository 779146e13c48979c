"""Test whether an encoding satisfies exactly the laws that it declares."""

import copy
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.overrides import TorchFunctionMode

from spectrope.core import ConfigError, UnsupportedError, torch_stream
from spectrope.encodings.base import ENCODINGS, Context, Encoding, Form, Tag

EXACT = 1e-8  # Largest relative deviation that rounding of float64 explains.
MASK = 1e6  # From this size on, logits are compared with each other alone, since masks have such values.
TOKENS, FAR = 32, 100_003  # Of the contents, and by how much positions are shifted at most.
WIDER = {torch.float32: torch.float64, torch.complex64: torch.complex128}


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Sizes of a small model in which an encoding is tested; its configuration must be fitted to them."""

    d_model: int = 32
    n_heads: int = 4
    head_dim: int = 8
    max_length: int = 64
    causal: bool = True

    @property
    def tried_on(self) -> str:
        """On what laws are tested, in words."""
        return f"{tokens_of(self)} tokens, {'causal' if self.causal else 'both ways'}"


@dataclass(frozen=True)
class LawCheck:
    """One law: whether the encoding declares it, and how far it is from holding.

    A violated law remains violated in higher precision; an apparent violation caused by float32 rounding does
    not. Each law is therefore measured twice with float64 inputs and outputs: with the encoding unchanged,
    and with all its float32 computations widened to float64.

    Args:
        law: The law.
        declared: Whether the encoding's tags contain it.
        error: Largest deviation, relative to the largest value compared; infinite where it cannot hold, and
            NaN where logits are no numbers.
        widened_error: The same deviation with everything widened to float64.
    """

    law: Tag
    declared: bool
    error: float
    widened_error: float

    @property
    def holds(self) -> bool:
        """Whether the deviation is within rounding of float64 once everything is computed in it."""
        return self.widened_error < EXACT

    @property
    def rounds(self) -> bool:
        """Whether the law holds, but float32 rounding of the encoding exceeds the tolerance."""
        return self.holds and self.error >= EXACT

    @property
    def honest(self) -> bool:
        """Whether the declaration agrees with the measurement, which reaches to position 100,034 at most."""
        return self.holds == self.declared

    @property
    def is_known(self) -> bool:
        """Whether logits are numbers, so that they can be compared."""
        return not math.isnan(self.widened_error)

    @property
    def note(self) -> str:
        """What is wrong, with the remedy; empty where nothing is."""
        if not self.is_known:
            return "cannot tell: what is compared contains NaN"
        if self.declared and not self.holds:
            return "the declaration is wrong; remove the tag"
        if self.holds and not self.declared:
            return "holds for all that was tested; add the tag if it holds at every position"
        if self.rounds:
            return "float32 rounding alone; it is exact where everything is computed in float64"
        return ""


def laws_of(name: str, sizes: Sizes | None = None) -> list[LawCheck]:
    """Test every law on a registered encoding with its default configuration, in a model of these sizes."""
    sizes = sizes or Sizes()
    return check_laws(ENCODINGS.config(name)().fitted(**asdict(sizes)).build(), sizes)


def check_laws(encoding: Encoding, sizes: Sizes | None = None, seed: int = 0) -> list[LawCheck]:
    """Test every law on random contents in float64, with perturbed parameters.

    Args:
        encoding: Built for these sizes; it is copied, never changed.
        sizes: The model to try it in.
        seed: Seed of the contents.

    Returns:
        One check per member of `Tag`.

    Raises:
        ConfigError: If its `bias` is another than its `lag_bias`.
    """

    def errors(tested: Encoding) -> list[float]:
        trial = LawTrial(tested, sizes or Sizes(), seed)
        _require_one_bias(trial)
        return [measure(trial) for measure in MEASURES.values()]

    as_it_is = errors(encoding)
    renewable = _same_logits(encoding, _built_anew(encoding), sizes or Sizes(), seed)
    with _Widened():
        widened = errors(_built_anew(encoding) if renewable else encoding)
    laws = zip(MEASURES, as_it_is, widened, strict=True)
    return [LawCheck(law, law in encoding.tags, error, wide) for law, error, wide in laws]


def _built_anew(encoding: Encoding) -> Encoding:
    """The encoding built once more, with the same parameters; itself where that fails."""
    try:
        with torch.random.fork_rng(devices=()), torch.no_grad():
            again = type(encoding)(encoding.config)
            for parameter, own in zip(again.parameters(), encoding.parameters(), strict=True):
                parameter.copy_(own)
    except Exception:  # What a user's class raises is not ours to list.
        return encoding
    return again


def _same_logits(encoding: Encoding, again: Encoding, sizes: "Sizes", seed: int) -> bool:
    """Whether two encodings give the same logits: none was changed after it was built, or drew its tables."""
    trials = [LawTrial(one, sizes, seed) for one in (encoding, again)]
    return torch.equal(*(one.logits(one.contents(), one.moved(0)) for one in trials))


class _Widened(TorchFunctionMode):
    """While active, what is asked for in float32 or complex64 is computed in twice that precision."""

    def __enter__(self) -> "_Widened":
        self.default = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        torch.set_default_dtype(self.default)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.float:
            func = torch.Tensor.double
        named = {name: _wider(value) for name, value in (kwargs or {}).items()}
        return func(*map(_wider, args), **named)


def _wider(value: Any) -> Any:
    """A type twice as wide, for a type of 32 bits per number; anything else as it is."""
    return WIDER.get(value, value) if isinstance(value, torch.dtype) else value


class LawTrial:
    """An encoding between random contents and their logits.

    Args:
        encoding: Copied to float64, with noise added to its parameters.
        sizes: The model around it.
        seed: Names contents, projections and noise.
        length: Tokens; at most half of the longest sequence of the model.
    """

    def __init__(self, encoding: Encoding, sizes: Sizes, seed: int = 0, length: int = TOKENS) -> None:
        self.encoding = copy.deepcopy(encoding).double()
        self.sizes, self.length = sizes, tokens_of(sizes, length)
        self.shift = min(17, sizes.max_length - self.length)
        length = self.length
        self._stream = torch_stream(seed, "laws")
        self.pos = torch.arange(length)[None]
        self.projections = self.draw(2, sizes.d_model, sizes.n_heads * sizes.head_dim) / sizes.d_model**0.5
        self._perturb(seed)

    def _perturb(self, seed: int) -> None:
        """Add noise to parameters; where logits are no numbers then, change each by little."""
        parameters = [*self.encoding.parameters()]
        before = [parameter.detach().clone() for parameter in parameters]
        noise = [0.3 * self.draw(*parameter.shape) for parameter in parameters]
        stream = torch_stream(seed, "perturbed")
        x = torch.randn(2, self.length, self.sizes.d_model, generator=stream, dtype=torch.float64)
        with torch.no_grad():
            for parameter, added in zip(parameters, noise, strict=True):
                parameter += added
            if parameters and bool(self.logits(x, self.moved(0)).isnan().any()):
                for parameter, own, added in zip(parameters, before, noise, strict=True):
                    parameter.copy_(own * (1 + 0.1 * added.tanh()))

    def moved(self, by: int) -> Tensor:
        """Positions of the tokens, shifted; on several axes, scattered and shifted by different numbers."""
        axes = self.encoding.axes
        if axes < 2:
            return self.pos + by
        generator = torch_stream(0, "coordinates")
        places = torch.randint(self.length, (1, self.length, axes), generator=generator)
        shifts = (by - torch.arange(axes)).clamp(min=0)
        return torch.cat([self.pos[..., None] + by, places + shifts], -1)

    def draw(self, *shape: int) -> Tensor:
        """Standard normal numbers."""
        return torch.randn(shape, generator=self._stream, dtype=torch.float64)

    def contents(self) -> Float[Tensor, "b t c"]:
        """Hidden states of two sequences."""
        return self.draw(2, self.length, self.sizes.d_model)

    def context(self, x: Float[Tensor, "b t c"], pos: Tensor) -> Context:
        """What one attention layer shows of token embeddings x at positions pos."""
        x = self.encoding.embed(x, pos)
        q, k = ((x @ w).unflatten(-1, (self.sizes.n_heads, -1)).transpose(1, 2) for w in self.projections)
        return Context(q, k, pos, pos, x, x)

    def logits(self, x: Float[Tensor, "b t c"], pos: Tensor) -> Float[Tensor, "b h i j"]:
        """Logits of x under random query and key projections, at the entries that a causal model sees."""
        logits = self.encoding.logits(self.context(x, pos))
        return logits.tril() if self.sizes.causal else logits


def tokens_of(sizes: Sizes, length: int = TOKENS) -> int:
    """How many tokens laws are tested on: at most half of the longest sequence of the model."""
    return min(length, max(2, sizes.max_length // 2))


def relative_error(a: Tensor, b: Tensor) -> float:
    """Largest difference, relative to the largest value that is compared; 0 where all are equal.

    Values of the size of masks are compared with each other alone, so that they hide no difference of
    others. The error is infinite where one of two values alone is, and NaN where one is no number.
    """
    a, b = torch.broadcast_tensors(a.detach(), b.detach())
    gap, size = torch.where(a == b, 0.0, (a - b).abs()), torch.maximum(a.abs(), b.abs())
    if bool(gap.isnan().any()):
        return math.nan
    finite = size.isfinite()
    some = [(gap[chosen & finite], size[chosen & finite]) for chosen in (size < MASK, size >= MASK)]
    errors = [float(g.max() / s.max()) for g, s in some if len(s) and bool(s.max() > 0)]
    return max((*errors, math.inf if bool(gap.isinf().any()) else 0.0))


def worst(*errors: float) -> float:
    """The largest error; NaN if any is."""
    return float(torch.tensor(errors, dtype=torch.float64).max())


def far_or_near(trial: LawTrial, measure: Callable[[Tensor], float]) -> float:
    """The worst error at positions 0, 1, ..., at those shifted by 17, or as far as the longest sequence
    allows, and at those shifted by 100,003 if the encoding reaches them."""
    near = worst(*(measure(trial.moved(by)) for by in (0, trial.shift)))
    try:
        return worst(near, measure(trial.moved(FAR)))
    except (UnsupportedError, IndexError):  # A table of its own length may end before.
        return near


def shift_error(trial: LawTrial) -> float:
    """Change of the logits, and of what is read with them, when positions are shifted."""
    x = trial.contents()
    here = trial.logits(x, trial.moved(0))
    reads = type(trial.encoding).read is not Encoding.read
    values = trial.draw(2, trial.sizes.n_heads, trial.length, trial.sizes.head_dim) if reads else None

    def outputs(pos: Tensor) -> Tensor:
        assert values is not None
        hidden = torch.ones(trial.length, trial.length, dtype=torch.bool).triu(1) & trial.sizes.causal
        pattern = here.masked_fill(hidden, -math.inf).softmax(-1).nan_to_num()
        return trial.encoding.read(pattern, values, trial.context(x, pos))

    def change(pos: Tensor) -> float:
        logits = relative_error(here, trial.logits(x, pos))
        return worst(logits, relative_error(outputs(trial.moved(0)), outputs(pos))) if reads else logits

    return far_or_near(trial, change)


def content_error(trial: LawTrial) -> float:
    r"""Deviation of the encoding from depending only on positions.

    Neither what `embed` adds nor `bias` may depend on tokens; logits must be a bilinear form :math:`B(q, k)`
    of queries and keys plus a term of the positions.
    """
    x, y = trial.contents(), trial.contents()
    return far_or_near(trial, lambda pos: _content_error(trial, x, y, pos))


def _content_error(
    trial: LawTrial, x: Float[Tensor, "b t c"], y: Float[Tensor, "b t c"], pos: Tensor
) -> float:
    """The same at some positions, of two contents."""
    embed = trial.encoding.embed
    added = relative_error(embed(x, pos) - x, embed(y, pos) - y)
    a, b = trial.context(x, pos), trial.context(y, pos)

    def form(q: Tensor, k: Tensor, seen: Context = a) -> Tensor:
        ctx = Context(q, k, a.q_pos, a.k_pos, seen.x_q, seen.x_k)
        logits = trial.encoding.logits(ctx)
        return logits.tril() if trial.sizes.causal else logits

    def bias(q: Tensor, k: Tensor) -> Tensor:
        term = trial.encoding.bias(Context(q, k, a.q_pos, a.k_pos, a.x_q, a.x_k))
        seen = (torch.zeros(1) if term is None else term).broadcast_to(*q.shape[:3], k.shape[2])
        return seen.tril() if trial.sizes.causal else seen

    zero = torch.zeros_like(a.q)
    constant = form(zero, zero)
    return worst(
        added,
        relative_error(bias(a.q, a.k), bias(zero, zero)),
        relative_error(form(a.q + b.q, a.k) + constant, form(a.q, a.k) + form(b.q, a.k)),
        relative_error(form(a.q, a.k + b.k) + constant, form(a.q, a.k) + form(a.q, b.k)),
        relative_error(form(a.q, zero), constant),
        relative_error(form(zero, a.k), constant),
        relative_error(form(a.q, a.k), form(a.q, a.k, b)),
    )


def norm_error(trial: LawTrial) -> float:
    """Change of the norms of inputs, queries and keys; infinite where something is added to the logits."""
    encoding, x = trial.encoding, trial.contents()
    if encoding.form is Form.GENERAL or encoding.bias(trial.context(x, trial.moved(0))) is not None:
        return math.inf

    def change(pos: Tensor) -> float:
        ctx = trial.context(x, pos)
        pairs = [
            (x, encoding.embed(x, pos)),
            (ctx.q, encoding.rotate(encoding.scaled(ctx.q), pos, "query")),
            (ctx.k, encoding.rotate(ctx.k, pos, "key")),
        ]
        return worst(*(relative_error(before.norm(dim=-1), after.norm(dim=-1)) for before, after in pairs))

    return far_or_near(trial, change)


def _require_one_bias(trial: LawTrial) -> None:
    """Refuse an encoding whose two ways to its bias differ.

    Raises:
        ConfigError: If `lag_bias`, from which spectra and FFT kernels come, gives another bias than `bias`,
            which attention adds.
    """
    encoding, ctx = trial.encoding, trial.context(trial.contents(), trial.moved(0))
    if encoding.form is not Form.DOT_PLUS_LAG:
        return
    added, of_lags = encoding.bias(ctx), encoding.lag_bias(ctx.lag.double()).movedim(-1, -3)
    seen = torch.tril if trial.sizes.causal else torch.clone  # What attention can see.
    if added is None or relative_error(seen(added.double()), seen(of_lags)) > 1e-3:
        raise ConfigError(
            f"{type(encoding).__name__}.bias adds another bias than its lag_bias, from which spectra and FFT "
            "kernels come; derive from sp.encodings.LagBias and define lag_bias alone."
        )


def untrained_error(trial: LawTrial) -> float:
    """Infinite for an encoding without parameters to train."""
    return 0.0 if any(p.requires_grad for p in trial.encoding.parameters()) else math.inf


MEASURES: dict[Tag, Callable[[LawTrial], float]] = {
    Tag.SHIFT_INVARIANT: shift_error,
    Tag.CONTENT_FREE: content_error,
    Tag.ISOMETRIC: norm_error,
    Tag.LEARNED: untrained_error,
}
