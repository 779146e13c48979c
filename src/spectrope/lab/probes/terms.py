"""The content and position terms of the logits of each head (Eq. 8), with the assumptions they rest on."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from spectrope.encodings import Encoding, Side, Sinusoidal, complex_pairs
from spectrope.lab.probes.heads import LayerHeads
from spectrope.lab.probes.observed import ObservedLayer
from spectrope.lab.probes.spectrum import toeplitz_tests
from spectrope.models import Decoder
from spectrope.spectral import (
    SplitVectors,
    commuting_share,
    lag_effects,
    least_squares_effects,
    logit_matrices,
    null_shares,
    position_factor,
    term_energies,
)
from spectrope.stats import Intervals, RandomisationTest, jackknife_intervals

GROUPS = 10  # Groups of examples that the jackknife leaves out in turn; each costs a fit.
NUMBERS = ("share", "covariance", "toeplitz")
CLOSE = 1e-4  # Relative error up to which logits count as the product of queries and keys plus the bias.
LAST = "position-position"  # The term that Assumption 3.2 is about.
STEADY = (LAST, "bias")  # Terms that are the same in all examples.
NOISE = 1e-12  # Share of energy up to which a term is rounding noise, whose own structure means nothing.
TESTED = 64  # Examples that the permutation test uses at most.


@dataclass(frozen=True, eq=False)
class PositionTerm:
    """The position-position term of one head over its Toeplitz projection, row effects removed, in logits.

    Args:
        effect: Its lag effects, with mean 0.
        low: Least entry on the diagonal of each lag.
        high: Greatest entry on it; both equal `effect` for a Toeplitz term.
    """

    effect: Float[np.ndarray, " lags"]
    low: Float[np.ndarray, " lags"]
    high: Float[np.ndarray, " lags"]


@dataclass(frozen=True, eq=False)
class HeadTerms:
    """The terms of one head.

    Args:
        numbers: By term: `share`, `covariance` and `toeplitz`, the Toeplitz share of the term itself, with
            shape (3,).
        interaction: Share of the interaction in the variance of queries and of keys, with shape (2,).
        tests: By term: whether lags explain more of it than of randomly permuted rows and columns.
        position: The position-position term.
        factor: The Toeplitz factor that fits the complex logits best (G_e, measured), at the lags; None
            without a steady rotation of all coordinates.
        uniform: The mean of the rotations over frequencies, which that factor would be for independent
            content; None likewise.
    """

    numbers: Mapping[str, Intervals]
    interaction: Intervals
    tests: Mapping[str, RandomisationTest | None]
    position: PositionTerm
    factor: np.ndarray | None
    uniform: np.ndarray | None


@dataclass(frozen=True, eq=False)
class LayerTerms:
    """The terms of all heads of one layer.

    Args:
        layer: Number of the layer, from 0.
        n: Positions measured.
        lags: Lags in positions.
        toeplitz_null: Mean Toeplitz share of independent entries of one distribution, symmetric about 0.
        heads: A record per head; empty where `reason` says why.
        reason: Why logits have no such terms; empty where they have.
    """

    layer: int
    n: int
    lags: Float[np.ndarray, " lags"]
    toeplitz_null: float
    heads: tuple[HeadTerms, ...]
    reason: str = ""


def layer_terms(
    layer: LayerHeads, tokens: Int[Tensor, "b t"], n: int, draws: int = 199, seed: int = 0
) -> LayerTerms:
    """Split the logits of a layer's heads into the terms of content and position.

    Queries and keys are linear in hidden states, so that splitting them is splitting the states: each is a
    mean plus an effect of its token, an effect of its position and a remainder, estimated by least squares
    over all examples. Rotations act on each part, and what a bias adds is a term "bias" of its own.

    Args:
        layer: As `capture_heads` provides it, with at least two examples of at least n tokens.
        tokens: Token ids of the examples.
        n: Number of positions, at least 2.
        draws: Permutations in the test of each term.
        seed: Seed of the permutations.

    Raises:
        UnsupportedError: If positions are not equally spaced, or differ between examples.
    """
    observed = ObservedLayer(layer, n)
    null = null_shares(n, layer.causal).gauge_fixed.item()
    split = _Split(observed, tokens[:, :n].cpu())
    records: tuple[HeadTerms, ...] = ()
    if not (reason := split.objection()):
        intervals = jackknife_intervals(lambda index: _measured(split, index), len(tokens), GROUPS)
        whole = split.turned(np.arange(len(tokens)))
        heads = range(observed.logits.shape[1])
        records = tuple(_head(split, head, whole, intervals, draws, seed) for head in heads)
    return LayerTerms(layer.layer, n, observed.lags, null, records, reason)


def commuting_shares(model: Decoder) -> list[Float[np.ndarray, " h"] | None]:
    r"""Share of each head's form that commutes with the rotations of a sinusoidal input term, per layer.

    The form is :math:`M = \operatorname{diag}(g) W_Q^\top W_K \operatorname{diag}(g)`, g being the gain of
    the norm before attention. Sinusoids give Toeplitz logits exactly where the share is 1; 1/d_model is
    expected of a random M. None for layers of encodings without such a term, or without W_Q and W_K.
    """
    return [_commuting(model, layer) for layer in range(len(model.blocks))]


def _commuting(model: Decoder, layer: int) -> Float[np.ndarray, " h"] | None:
    block, planes = model.blocks[layer], model.config.d_model // 2
    waves = _sinusoids(model.encoding_of(layer))
    qkv = getattr(getattr(block, "heads", None), "qkv", None)
    if waves is None or qkv is None:
        return None
    gain = block.attention_norm.weight.detach().double().cpu()  # pyright: ignore[reportAttributeAccessIssue, reportCallIssue]
    order = torch.arange(2 * planes)
    if waves.config.layout == "halves":
        order = order.view(2, planes).T.flatten()
    weight = qkv.weight.detach().double().cpu() * gain
    q, k = weight.unflatten(0, (3, model.config.n_heads, -1))[:2, ..., order]
    return np.array([commuting_share(form, planes) for form in q.mT @ k])


def _sinusoids(encoding: Encoding) -> Sinusoidal | None:
    return next((one for one in encoding.modules() if isinstance(one, Sinusoidal)), None)


class _Split:
    """Queries, keys and bias of a layer, ready to be split on any of its examples."""

    def __init__(self, observed: ObservedLayer, tokens: Int[Tensor, "b n"]) -> None:
        self.observed, self.tokens, self.encoding = observed, tokens, observed.layer.encoding
        self.plain = observed.plain
        bias = observed.layer.bias
        n = observed.n
        self.bias = None if bias is None else bias[..., :n, :n].detach().to("cpu", torch.float64)

    def objection(self) -> str:
        """Why logits are no product of split vectors plus a bias; empty where they are."""
        name = type(self.encoding).__name__
        if not self.encoding.factors:
            return f"{name} does not compute logits as a product of queries and keys plus a bias."
        whole = self.effects(np.arange(len(self.tokens)))
        for vectors, parts, side in zip(self.plain, whole, ("query", "key"), strict=True):
            turned = self._turn(vectors, side)
            error = (self._turned(parts, side).total - turned).norm()
            if error > CLOSE * turned.norm():
                return f"{name} is not linear in queries and keys, so that parts cannot be added."
        if self.bias is not None and len(self.bias) > 1:
            return f"{name} adds a bias that depends on content, which has no place among the terms."
        logits = self.observed.logits if self.bias is None else self.observed.logits - self.bias
        product = self._turn(self.plain[0], "query") @ self._turn(self.plain[1], "key").mT
        allowed = torch.ones(logits.shape[-2:]).tril() if self.observed.causal else torch.ones(1)
        logits, product = logits * allowed, product * allowed
        self.scale = ((logits * product).sum() / (product**2).sum()).item()
        if (logits - self.scale * product).norm() > CLOSE * logits.norm():
            return f"{name} adds a term to the logits beside its bias and the product of queries and keys."
        return ""

    def effects(self, index: Int[np.ndarray, " m"]) -> tuple[SplitVectors, SplitVectors]:
        """Parts of the queries and keys of some examples before rotation, each with shape (b, h, n, d)."""
        rows = torch.from_numpy(index)
        q, k = (x[rows] for x in self.plain)
        b, h, n, d = q.shape
        states = torch.cat([q, k], -1).transpose(1, 2).reshape(b * n, -1)
        positions = torch.arange(n).expand(b, -1)
        design = self.tokens[rows].flatten(), positions.flatten()
        parts = SplitVectors.of(least_squares_effects(states, *design))
        shaped = (x.view(b, n, h, 2, d).permute(3, 0, 2, 1, 4) for x in vars(parts).values())
        queries, keys = zip(*shaped, strict=True)
        return SplitVectors(*queries), SplitVectors(*keys)

    def turned(self, index: Int[np.ndarray, " m"]) -> tuple[SplitVectors, SplitVectors]:
        """Parts of the queries and keys of some examples as they enter the product."""
        q, k = self.effects(index)
        return self._turned(q, "query"), self._turned(k, "key")

    def matrices(self, q: SplitVectors, k: SplitVectors, head: int) -> dict[str, Float[Tensor, "b n n"]]:
        """The terms of one head's logits, of parts as they enter the product."""
        q, k = (SplitVectors(*(part[:, head] for part in vars(x).values())) for x in (q, k))
        terms = {name: self.scale * term for name, term in logit_matrices(q, k).items()}
        if self.bias is not None:
            terms["bias"] = self.bias[0, head if self.bias.shape[1] > 1 else 0].expand(terms[LAST].shape)
        return terms

    def _turned(self, parts: SplitVectors, side: Side) -> SplitVectors:
        return SplitVectors(*(self._turn(part, side) for part in vars(parts).values()))

    def _turn(self, x: Float[Tensor, "b h n d"], side: Side) -> Float[Tensor, "b h n d"]:
        ctx, n = self.observed.layer.ctx, self.observed.n
        pos = (ctx.q_pos if side == "query" else ctx.k_pos)[:1, :n]
        x = self.encoding.scaled(x) if side == "query" else x
        return self.encoding.rotate(x, pos, side).double()


def _measured(split: _Split, index: Int[np.ndarray, " m"]) -> Float[np.ndarray, "h k"]:
    """Every number of every head: three per term, and the shares of interaction in queries and keys."""
    q, k = split.turned(index)
    rows = []
    for head in range(q.content.shape[1]):
        terms = torch.stack(list(split.matrices(q, k, head).values()))
        energies = term_energies(terms, split.observed.causal)
        toeplitz = lag_effects(terms, split.observed.causal).share.nanmean(1)
        toeplitz = torch.where(energies.share > NOISE, toeplitz, torch.nan)
        numbers = torch.stack([energies.share, energies.covariance, toeplitz], 1)
        rows.append(torch.cat([numbers.flatten(), _interaction(q, head), _interaction(k, head)]))
    return torch.stack(rows).numpy()


def _interaction(parts: SplitVectors, head: int) -> Float[Tensor, " 1"]:
    """Share of the remainder in the variance of one head's vectors."""
    content = parts.content[:, head]
    varying = content - content.mean((0, 1)) + parts.position[:, head] + parts.interaction[:, head]
    return ((parts.interaction[:, head] ** 2).sum() / (varying**2).sum())[None]


def _head(
    split: _Split,
    head: int,
    whole: tuple[SplitVectors, SplitVectors],
    intervals: Intervals,
    draws: int,
    seed: int,
) -> HeadTerms:
    terms, causal = split.matrices(*whole, head), split.observed.causal
    place = split.observed.layer.layer, head
    first = {name: len(NUMBERS) * number for number, name in enumerate(terms)}
    return HeadTerms(
        numbers={name: _part(intervals, head, slice(at, at + len(NUMBERS))) for name, at in first.items()},
        interaction=_part(intervals, head, slice(-2, None)),
        tests={
            name: _test(term if name not in STEADY else term[:1], causal, draws, seed, *place, name)
            if intervals.estimate[head, first[name]] > NOISE
            else None
            for name, term in terms.items()
        },
        position=_position(terms[LAST][0], causal),
        factor=_factor(split.observed, head),
        uniform=_uniform(split.observed, head),
    )


def _part(intervals: Intervals, head: int, numbers: slice) -> Intervals:
    ends = (getattr(intervals, name)[head, numbers] for name in ("estimate", "low", "high"))
    return Intervals(
        **dict(zip(("estimate", "low", "high"), ends, strict=True)),
        level=intervals.level,
        method=intervals.method,
    )


def _test(
    term: Float[Tensor, "b n n"], causal: bool, draws: int, seed: int, *place: object
) -> RandomisationTest | None:
    some = term[:: max(1, len(term) // TESTED)][:TESTED]
    return toeplitz_tests(some[:, None], causal, draws, seed, "terms", *place)[0]


def _position(term: Float[Tensor, "n n"], causal: bool) -> PositionTerm:
    """The term and its projection, both without row effects."""
    n, effects = len(term), lag_effects(term, causal).lags
    allowed = torch.ones(n, n, dtype=torch.bool).tril() if causal else torch.ones(n, n, dtype=torch.bool)
    lag = torch.arange(n)[:, None] - torch.arange(n)
    place = lag if causal else lag + n - 1
    excess = torch.where(allowed, term - effects[place.clamp(min=0)], 0)
    rest = excess - excess.sum(1, keepdim=True) / allowed.sum(1, keepdim=True)
    entries = [rest[allowed & (place == one)] for one in range(len(effects))]
    low, high = (torch.stack([end(part) for part in entries]) for end in (torch.amin, torch.amax))
    return PositionTerm(*(x.numpy() for x in (effects, effects + low, effects + high)))


def _factor(observed: ObservedLayer, head: int) -> np.ndarray | None:
    rotation = observed.rotations[head]
    if rotation is None:
        return None
    q, k = (complex_pairs(x[:, head], rotation.pairs) for x in observed.plain)
    return position_factor(q, k, rotation.frequencies * observed.spacing, observed.causal).numpy()


def _uniform(observed: ObservedLayer, head: int) -> np.ndarray | None:
    rotation = observed.rotations[head]
    if rotation is None:
        return None
    return np.exp(1j * np.outer(observed.lags, rotation.frequencies.numpy())).mean(1)
