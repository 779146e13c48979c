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

from spectrope.core import UnsupportedError, torch_stream
from spectrope.encodings.base import ENCODINGS, Context, Encoding, Form, Tag

EXACT = 1e-8  # Largest relative deviation that rounding of float64 explains.


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Sizes of a small model in which an encoding is tested; its configuration must be fitted to them."""

    d_model: int = 32
    n_heads: int = 4
    head_dim: int = 8
    max_length: int = 64
    causal: bool = True


@dataclass(frozen=True)
class LawCheck:
    """One law: whether the encoding declares it, and how far it is from holding.

    A violated law remains violated in higher precision; an apparent violation caused by float32 rounding does
    not. Each law is therefore measured twice with float64 inputs and outputs: with the encoding unchanged,
    and with all its float32 computations widened to float64.

    Args:
        law: The law.
        declared: Whether the encoding's tags contain it.
        error: Largest deviation, relative to the largest value compared; infinite where it cannot hold.
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
        """Whether the declaration agrees with the measurement, which reaches to position 100,014 at most."""
        return self.holds == self.declared

    @property
    def note(self) -> str:
        """What is wrong, with the remedy; empty where nothing is."""
        if self.declared and not self.holds:
            return "the declaration is wrong; remove the tag"
        if self.holds and not self.declared:
            return "holds for all that was tested; add the tag if it holds at every position"
        if self.rounds:
            return "float32 rounding alone; `pos.double()` is exact"
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
    """

    def errors() -> list[float]:
        trial = LawTrial(encoding, sizes or Sizes(), seed)
        return [measure(trial) for measure in MEASURES.values()]

    as_it_is = errors()
    with _Widened():
        widened = errors()
    laws = zip(MEASURES, as_it_is, widened, strict=True)
    return [LawCheck(law, law in encoding.tags, error, wide) for law, error, wide in laws]


class _Widened(TorchFunctionMode):
    """While active, what is asked for in float32 is computed in float64."""

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
        args = tuple(torch.float64 if value is torch.float32 else value for value in args)
        named = {k: torch.float64 if value is torch.float32 else value for k, value in (kwargs or {}).items()}
        return func(*args, **named)


class LawTrial:
    """An encoding between random contents and their logits.

    Args:
        encoding: Copied to float64, with noise added to its parameters.
        sizes: The model around it.
        seed: Names contents, projections and noise.
        length: Tokens; at most half of the longest sequence of the model.
    """

    def __init__(self, encoding: Encoding, sizes: Sizes, seed: int = 0, length: int = 12) -> None:
        self.encoding = copy.deepcopy(encoding).double()
        self.sizes, self.length = sizes, min(length, max(2, sizes.max_length // 2))
        self.shift = min(17, sizes.max_length - self.length)
        length = self.length
        self._stream = torch_stream(seed, "laws")
        self.pos = torch.arange(length)[None]
        self.projections = self.draw(2, sizes.d_model, sizes.n_heads * sizes.head_dim) / sizes.d_model**0.5
        with torch.no_grad():
            for parameter in self.encoding.parameters():
                parameter += 0.3 * self.draw(*parameter.shape)

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


def relative_error(a: Tensor, b: Tensor) -> float:
    """Largest difference over the largest value; 0 where both are 0, infinite where one is not finite."""
    if not (a.isfinite().all() and b.isfinite().all()):
        return float("inf")
    scale = max(float(a.detach().abs().max()), float(b.detach().abs().max()))
    return float((a - b).detach().abs().max()) / scale if scale > 0 else 0.0


def shift_error(trial: LawTrial) -> float:
    """Change of the logits when positions are shifted by 17, or as far as the longest sequence allows, and by
    100,003 if the encoding supports that."""
    x = trial.contents()
    here = trial.logits(x, trial.pos)
    near = relative_error(here, trial.logits(x, trial.pos + trial.shift))
    try:
        return max(near, relative_error(here, trial.logits(x, trial.pos + 100_003)))
    except UnsupportedError:
        return near


def content_error(trial: LawTrial) -> float:
    r"""Deviation of the encoding from depending only on positions.

    Neither what `embed` adds nor `bias` may depend on tokens; logits must be a bilinear form :math:`B(q, k)`
    of queries and keys plus a term of the positions.
    """
    x, y = trial.contents(), trial.contents()
    embed = trial.encoding.embed
    added = relative_error(embed(x, trial.pos) - x, embed(y, trial.pos) - y)
    a, b = trial.context(x, trial.pos), trial.context(y, trial.pos)

    def form(q: Tensor, k: Tensor, seen: Context = a) -> Tensor:
        ctx = Context(q, k, a.q_pos, a.k_pos, seen.x_q, seen.x_k)
        logits = trial.encoding.logits(ctx)
        return logits.tril() if trial.sizes.causal else logits

    def bias(q: Tensor, k: Tensor) -> Tensor:
        term = trial.encoding.bias(Context(q, k, a.q_pos, a.k_pos, a.x_q, a.x_k))
        return torch.zeros(1) if term is None else term

    zero = torch.zeros_like(a.q)
    constant = form(zero, zero)
    return max(
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
    encoding, x, pos = trial.encoding, trial.contents(), trial.pos
    ctx = trial.context(x, pos)
    if encoding.form is Form.GENERAL or encoding.bias(ctx) is not None:
        return math.inf
    pairs = [
        (x, encoding.embed(x, pos)),
        (ctx.q, encoding.rotate(encoding.scaled(ctx.q), pos, "query")),
        (ctx.k, encoding.rotate(ctx.k, pos, "key")),
    ]
    return max(relative_error(before.norm(dim=-1), after.norm(dim=-1)) for before, after in pairs)


def untrained_error(trial: LawTrial) -> float:
    """Infinite for an encoding without parameters to train."""
    return 0.0 if any(p.requires_grad for p in trial.encoding.parameters()) else math.inf


MEASURES: dict[Tag, Callable[[LawTrial], float]] = {
    Tag.SHIFT_INVARIANT: shift_error,
    Tag.CONTENT_FREE: content_error,
    Tag.ISOMETRIC: norm_error,
    Tag.LEARNED: untrained_error,
}
