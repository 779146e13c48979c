"""Explain differences of predictions by simulating faults on the local copy."""

import contextlib
import copy as copying
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from spectrope.checkpoints.adapters import FAILURES
from spectrope.checkpoints.parity.faults import Simulation, simulations
from spectrope.checkpoints.parity.observed import Observed, divergence
from spectrope.checkpoints.parity.runtimes import ModelRuntime
from spectrope.checkpoints.parity.sites import LocalCopy
from spectrope.core import Progress, UnsupportedError, Watch

FLOOR = 1e-10  # Divergence in nats that is left to the rounding of float32 and of what a server prints.
UNNOTICED = 1e-8  # Mean divergence in nats below which two runtimes are the same.
EXPLAINED = 0.5  # Share of the divergence that a cause has to remove.
CONVINCING = math.log(1000)  # Logarithm of the likelihood ratio over no fault, and over precision, likewise.
TIE = math.log(20)  # The same, below which two explanations are not told apart.
PRECISION_SLACK = 4.0  # How many times what lower precision makes here is left to precision.
FEW = 4  # Prompts on which parameters are searched.
ONSET_GAIN = 3.0  # Logarithm of the likelihood ratio from which an onset, or a lower precision, is taken.
STARTS = 3  # Local minima from which a parameter is refined.
ALL_WHOLE = 40  # Whole numbers in an interval, at most, that are all tried.
ROUNDS, POINTS = 5, 4  # Of a search between two values of a parameter, and values tried in each.
SHALLOW = 6  # Layers up to which every fault is tried in every single layer.
MOST_FAMILIES = 10  # Likeliest faults: ranked, and tried in the single layers of a deeper model.
REFINED = 6  # Likeliest faults whose parameters are refined.
PRECISIONS = {"bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True)
class Explanation:
    r"""One explanation of how predictions differ.

    The likelihood assumes that the remaining differences of log-probabilities are normal, with one unknown
    variance, and that prompts are independent. With n prompts, p parameters and a remaining mean divergence
    D, its penalised logarithm is :math:`-\tfrac n2 \log D - \tfrac p2 \log n` up to a constant.

    Args:
        codes: In the catalogue; none for precision alone and for no fault.
        words: What it is.
        divergence: Mean divergence, in nats, of the simulated predictions from those observed.
        log_likelihood: Up to a constant that all explanations share.
        layers: Where the fault is; empty for all layers.
        onset: Tokens before it in a prompt; 0 where it is at work from the start.
        value: Of the parameter; None without one.
    """

    codes: tuple[str, ...]
    words: str
    divergence: float
    log_likelihood: float
    layers: tuple[int, ...] = ()
    onset: int = 0
    value: float | None = None
    explained: float = 0.0

    def __str__(self) -> str:
        where = f" in layer {', '.join(map(str, self.layers))}" if self.layers else ""
        since = f" from position {self.onset}" if self.onset else ""
        code = f" ({' or '.join(self.codes)})" if self.codes else ""
        return f"{self.words}{where}{since}{code}"


@dataclass(frozen=True)
class Causes:
    """Explanations, the most likely first.

    Args:
        ranked: The best of each fault and each set of layers.
        none: No fault and no other precision.
        precision: The local copy itself in lower precision.
        precision_made: Mean divergence, in nats, of the local copy in lower precision from itself.
        unsimulated: Why no fault could be simulated; "" where they were.
    """

    ranked: tuple[Explanation, ...]
    none: Explanation
    precision: tuple[Explanation, ...]
    precision_made: float = 0.0
    unsimulated: str = ""

    @property
    def same(self) -> bool:
        """Whether predictions are the same up to rounding."""
        return self.none.divergence <= UNNOTICED

    @property
    def cause(self) -> Explanation | None:
        """The fault that explains the difference, if one does and no other fault does as well."""
        best = self.convincing
        return best if best and all(set(one.codes) & set(best.codes) for one in self.rivals) else None

    @property
    def convincing(self) -> Explanation | None:
        """The likeliest fault, if it explains the difference better than precision and than no fault."""
        if self.same or not self.ranked:
            return None
        best, others = self.ranked[0], (self.none, *self.precision)
        enough = all(
            best.divergence <= EXPLAINED * other.divergence
            and best.log_likelihood - other.log_likelihood > CONVINCING
            for other in others
        )
        return best if enough else None

    @property
    def rivals(self) -> tuple[Explanation, ...]:
        """Other explanations that explain the difference nearly as well as the likeliest one."""
        best = self.ranked[0]
        return tuple(one for one in self.ranked[1:] if best.log_likelihood - one.log_likelihood < TIE)

    @property
    def next_best(self) -> tuple[Explanation, float] | None:
        """The second best explanation, and how many times less likely it is than the first."""
        if len(self.ranked) < 2:
            return None
        second = max((*self.ranked[1:], self.none, *self.precision), key=lambda one: one.log_likelihood)
        return second, math.exp(min(self.ranked[0].log_likelihood - second.log_likelihood, 700.0))


@dataclass(frozen=True, eq=False)
class _Search:
    """Prompts, and what the other runtime predicts after them."""

    copy: LocalCopy
    prompts: Int[Tensor, "n t"]
    places: Int[Tensor, " m"]
    observed: Observed
    unchanged: Float[Tensor, "n m"]

    def few(self) -> "_Search":
        """The same on some of the prompts."""
        observed = self.observed.first(FEW)
        return replace(self, prompts=self.prompts[:FEW], observed=observed, unchanged=self.unchanged[:FEW])

    def curve(self, simulation: Simulation, value: float, layers: Sequence[int]) -> Float[Tensor, "n m"]:
        """The divergence that is left under a simulated fault."""
        with simulation.put_into(self.copy, value, layers):
            found = ModelRuntime(self.copy.model).observe(self.prompts, self.places)
        return divergence(self.observed, found)

    def explanation(self, simulation: Simulation, value: float, layers: Sequence[int]) -> Explanation:
        """A fault, with the position from which it is at work."""
        left = self.curve(simulation, value, layers)
        n_parameters = (simulation.scale != "one") + bool(layers)
        whole = log_likelihood(left, n_parameters)
        onset, switched = _onset(self.unchanged, left)
        later = log_likelihood(switched, n_parameters + 1)
        begins = later - whole > ONSET_GAIN
        return Explanation(
            codes=simulation.codes,
            words=simulation.words(value),
            divergence=float((switched if begins else left).mean()),
            log_likelihood=later if begins else whole,
            layers=tuple(layers),
            onset=int(self.places[onset]) if begins else 0,
            explained=_share(switched if begins else left, self.unchanged),
            value=None if simulation.scale == "one" else value,
        )


def _share(left: Float[Tensor, "n m"], unchanged: Float[Tensor, "n m"]) -> float:
    """Of the divergence of the sound copy, what a fault takes away; 0 where there is none."""
    whole = float(unchanged.mean())
    return 1 - float(left.mean()) / whole if whole else 0.0


def log_likelihood(left: Float[Tensor, "n m"], n_parameters: int) -> float:
    """See `Explanation`."""
    n = len(left)
    return -n / 2 * math.log(float(left.mean()) + FLOOR) - n_parameters / 2 * math.log(n)


def _onset(unchanged: Float[Tensor, "n m"], left: Float[Tensor, "n m"]) -> tuple[int, Float[Tensor, "n m"]]:
    """The place from which a fault explains more than none, and the divergence that is left so."""
    gained = (left - unchanged).sum(0)
    after = gained.flip(0).cumsum(0).flip(0)  # What taking the fault from each place on adds.
    place = int(after.argmin())
    return place, torch.cat([unchanged[:, :place], left[:, place:]], 1)


def find_causes(
    copy: LocalCopy,
    prompts: Int[Tensor, "n t"],
    places: Int[Tensor, " m"],
    observed: Observed,
    watch: Watch,
) -> Causes:
    """Simulate the faults of the catalogue and rank them by likelihood.

    Args:
        copy: The model, sound.
        prompts: Token ids.
        places: Places in prompts after which tokens are predicted.
        observed: What the other runtime predicts there.
        watch: Progress callback.
    """
    own = ModelRuntime(copy.model).observe(prompts, places)
    none = explained_by_nothing(divergence(observed, own))
    if none.divergence <= UNNOTICED:
        return Causes((), none, ())
    lower = dict(_in_precision(copy, prompts, places))
    left = {name: divergence(observed, seen) for name, (_, seen) in lower.items()}
    precision = tuple(_sound(f"arithmetic in {name}", curve) for name, curve in left.items())
    made = max((float(divergence(seen, own).mean()) for _, seen in lower.values()), default=0.0)
    unchanged = divergence(observed, own)
    for (name, (other, _)), one in zip(lower.items(), precision, strict=True):
        if one.log_likelihood - log_likelihood(unchanged, 0) > ONSET_GAIN:
            copy, unchanged = other, left[name]  # The other runtime computes in this precision, it seems.
    search = _Search(copy, prompts, places, observed, unchanged)
    families = list(simulations(copy, prompts.shape[1]))
    try:
        found, likely = _searched(search, families, (), watch)
    except UnsupportedError as error:
        return Causes((), none, precision, made, str(error))
    if len(copy.layers) <= SHALLOW:
        likely = families
    for part in _parts(copy):
        found += _searched(search, likely, part, watch)[0]
    ranked = sorted(found, key=lambda one: -one.log_likelihood)
    return Causes(tuple(ranked), none, precision, made)


def _searched(
    search: _Search, families: Sequence[Simulation], layers: tuple[int, ...], watch: Watch
) -> tuple[list[Explanation], list[Simulation]]:
    """The best explanations in some layers, and the families that are likeliest there."""
    tried: list[_Tried] = []
    for done, family in enumerate(families):
        if layers and not family.in_layers:
            continue
        with contextlib.suppress(*FAILURES):  # An attention function may not take such arguments.
            tried.append(_Tried.of(search.few(), family, layers))
        watch(Progress("simulating", done + 1, len(families)))
    tried.sort(key=lambda one: min(one.costs))
    found = []
    for rank, one in enumerate(tried[:MOST_FAMILIES]):
        value = one.refined(search.few(), layers) if rank < REFINED else one.best
        found.append(search.explanation(one.family, value, layers))
    return found, [one.family for one in tried[:MOST_FAMILIES]]


def _parts(copy: LocalCopy) -> list[tuple[int, ...]]:
    """Sets of layers in which a fault may be: single ones, and those of a type."""
    layers = copy.layers
    types = getattr(copy.model.config, "layer_types", None) or ["" for _ in layers]
    by_type = {kind: tuple(n for n in layers if n < len(types) and types[n] == kind) for kind in types}
    groups = [part for part in by_type.values() if 1 < len(part) < len(layers)]
    return [*((n,) for n in layers), *groups] if len(layers) > 1 else []


@dataclass(frozen=True, eq=False)
class _Tried:
    """A family at the values from which its search begins.

    Args:
        family: The family.
        costs: Divergence that is left, by value.
        near: The same over the first half of the places, where parameters are found from further away.
    """

    family: Simulation
    costs: Sequence[float]
    near: Sequence[float]

    @classmethod
    def of(cls, search: _Search, family: Simulation, layers: Sequence[int]) -> "_Tried":
        """Try all values."""
        curves = [search.curve(family, value, layers).mean(0) for value in family.values]
        near = [float(curve[: max(1, len(curve) // 2)].mean()) for curve in curves]
        return cls(family, [_cost(search, curve) for curve in curves], near)

    @property
    def best(self) -> float:
        """The value that leaves the least divergence."""
        return self.family.values[self.costs.index(min(self.costs))]

    def refined(self, search: _Search, layers: Sequence[int]) -> float:
        """A better value between those tried, where there are any."""
        if self.family.scale in ("one", "listed"):
            return self.best
        starts = {self.near.index(min(self.near)), *_minima(self.costs)[:STARTS]}
        found = [_refined(search, self.family, layers, start, self.costs[start]) for start in starts]
        return min(found)[1]


def _cost(search: _Search, curve: Float[Tensor, " m"]) -> float:
    """The divergence that is left, with the fault from where it explains more than none."""
    _, switched = _onset(search.unchanged.mean(0)[None], curve[None])
    return float(switched.mean())


def _minima(totals: Sequence[float]) -> list[int]:
    """Indices of local minima, the lowest first."""
    padded = [math.inf, *totals, math.inf]
    found = [i for i in range(len(totals)) if padded[i] >= padded[i + 1] <= padded[i + 2]]
    return sorted(found, key=lambda i: totals[i])


def _refined(
    search: _Search, family: Simulation, layers: Sequence[int], start: int, cost: float
) -> tuple[float, float]:
    """The least divergence near a value, and where."""
    values = family.values
    best = (cost, values[start])
    reach = 2 if family.scale == "whole" else 1  # Masks and tables make uneven landscapes.
    low, high = values[max(start - reach, 0)], values[min(start + reach, len(values) - 1)]
    for _ in range(ROUNDS):
        inside = [x for x in _between(family.scale, low, high) if x != best[1]]
        costs = [(_cost(search, search.curve(family, x, layers).mean(0)), x) for x in inside]
        best = min((best, *costs))
        tried = sorted({low, high, best[1], *inside})
        at = tried.index(best[1])
        low, high = tried[max(at - 1, 0)], tried[min(at + 1, len(tried) - 1)]
        if family.scale == "whole" and high - low <= 2:
            break
    return best


def _between(scale: str, low: float, high: float) -> list[float]:
    """Values inside an interval."""
    if scale == "whole" and high - low <= ALL_WHOLE:
        return [float(x) for x in range(math.ceil(low), math.floor(high) + 1)]
    shares = [(i + 1) / (POINTS + 1) for i in range(POINTS)]
    if scale == "logarithmic":
        return [low * (high / low) ** share for share in shares]
    inside = [low + (high - low) * share for share in shares]
    return sorted({float(round(x)) for x in inside}) if scale == "whole" else inside


def explained_by_nothing(left: Float[Tensor, "n m"]) -> Explanation:
    """That the local copy is right as it is, with the divergence that this leaves."""
    return _sound("no fault", left)


def _sound(words: str, left: Float[Tensor, "n m"]) -> Explanation:
    return Explanation((), words, float(left.mean()), log_likelihood(left, 0))


def _in_precision(
    copy: LocalCopy, prompts: Int[Tensor, "n t"], places: Int[Tensor, " m"]
) -> Iterator[tuple[str, tuple[LocalCopy, Observed]]]:
    """The model in lower precision, and what it predicts."""
    for name, dtype in PRECISIONS.items():
        lower = _converted(copy, dtype)
        try:
            yield name, (lower, ModelRuntime(lower.model).observe(prompts, places))
        except FAILURES:
            continue  # This machine's kernels lack the type.


def _converted(copy: LocalCopy, dtype: torch.dtype) -> LocalCopy:
    """A copy in another type, whose tables of frequencies stay as loading keeps them."""
    model = copying.deepcopy(copy.model)
    for tensor in model.parameters():
        tensor.data = tensor.data.to(dtype)
    pairs = zip(copy.model.modules(), model.modules(), strict=True)
    sites = {new: replace(copy.sites[old], module=new) for old, new in pairs if old in copy.sites}
    return LocalCopy(model, sites)
