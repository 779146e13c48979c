"""Audit layers of linear attention: the decay of each head, against that of the architecture."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor, nn

from spectrope.checkpoints.adapters import FAILURES, layer_name
from spectrope.checkpoints.adapters.linear import LinearSite, linear_sites
from spectrope.checkpoints.audit.compare import SLOPE, Discrepancy
from spectrope.checkpoints.audit.fields import Declaration
from spectrope.checkpoints.audit.records import DecayRecord
from spectrope.checkpoints.probes.constant_token import blocks_without
from spectrope.checkpoints.probes.one_key import OneKey, one_key

FAINT = 1e-3  # Weights that have decayed to less, or grown to more than its inverse, are not fitted.
NEAR = 5  # Distance of the last key from the end: behind a cache, it has not decayed yet.
LAW = "exp(-rate × lag)"


@dataclass(frozen=True, eq=False)
class FittedDecay:
    r"""How the weight of a key falls with the lag, in each head.

    Args:
        rates: Rate :math:`s_h` of the exponential :math:`e^{-s_h n}` through the weights, in 1 / positions.
        departures: Largest factor by which a weight departs from that exponential, as a logarithm.
        lags: Lag of that departure.
        reach: Largest lag at which a weight was measured.
        ahead: Largest weight of a key after the query, as a share of that at lag 0.
    """

    rates: Float[Tensor, " h"]
    departures: Float[Tensor, " h"]
    lags: tuple[int, ...]
    reach: int
    ahead: float


def declared_decays(declaration: Declaration, layer: int) -> tuple[float, ...]:
    r"""Rates of MiniMax's lightning attention: those of ALiBi, smaller in later layers.

    Head h of H in layer l of L has :math:`2^{-8 (h+1) / H} \, (1 - l / (L - 1 + \epsilon) + \epsilon)`, with
    :math:`\epsilon = 10^{-5}`.

    References:
        MiniMax-01 (MiniMax, 2025), Sec. 2.2; the factor of the layer as in the authors' code.
    """
    heads, layers, small = declaration.n_heads, declaration.number("num_hidden_layers"), 1e-5
    factor = 1 - layer / (layers - 1 + small) + small
    return tuple(2 ** (-8 * (head + 1) / heads) * factor for head in range(heads))


@dataclass(frozen=True, eq=False)
class LinearAudit:
    """The layers of linear attention of one model.

    Args:
        model: Without its head.
        declaration: Its configuration.
        attending: Dotted names of its modules of softmax attention.
        length: Positions.
        noise: Relative rounding error of the model's arithmetic.
    """

    model: nn.Module
    declaration: Declaration
    attending: list[str]
    length: int
    noise: float
    sites: list[LinearSite] = field(init=False)

    def __post_init__(self) -> None:
        blocks = blocks_without(self.model, self.attending)
        object.__setattr__(self, "sites", linear_sites(self.model, self.declaration.model_type, blocks))

    def records(self, *, cached: bool = True) -> tuple[DecayRecord, ...]:
        """A record per layer of linear attention.

        Args:
            cached: Whether to compare the weights behind a cache with those of a plain forward pass, too.
        """
        if not self.sites:
            return ()
        whole, served = self._weights(cached=False), None
        if cached:
            try:
                served = self._weights(cached=True)
            except FAILURES:  # a model that takes no cache
                served = None
        return tuple(self._record(site, whole, served) for site in self.sites)

    def _weights(self, *, cached: bool) -> OneKey:
        origins = (0, self.length // 3, self.length - NEAR)
        return one_key(
            self.model,
            self.sites,
            self.attending,
            self.declaration.n_heads,
            self.length,
            origins,
            cached=cached,
        )

    def _record(self, site: LinearSite, whole: OneKey, served: OneKey | None) -> DecayRecord:
        _, layer = layer_name(site.module)
        declared = declared_decays(self.declaration, layer)
        weights = whole.read(site.module)
        if bool((at_origin(weights, whole.origins) == 0).any()):
            reason = "a head reads nothing of a key at the query's own position"
            return DecayRecord(site.module, layer, (), declared, "cannot tell", (), reason, 0, False)
        seen = fit_decay(weights, whole.origins)
        findings = [*self._rates(layer, declared, seen), *self._law(seen)]
        if served is not None:
            findings += self._served(seen, fit_decay(served.read(site.module), served.origins))
        verdict = "differs" if findings else "matches"
        rates = tuple(seen.rates.tolist())
        return DecayRecord(
            site.module, layer, rates, declared, verdict, tuple(findings), "", seen.reach, served is not None
        )

    @property
    def tolerance(self) -> float:
        """Relative error that is left to a rate."""
        return max(SLOPE, 2 * self.noise)

    def _floor(self, reach: int) -> float:
        """Error of a rate in 1 / positions that rounding alone can cause."""
        return 4 * self.noise / reach

    def _rates(self, layer: int, declared: tuple[float, ...], seen: FittedDecay) -> Iterator[Discrepancy]:
        """One finding of all heads, or one of each whose rate differs."""
        rates, floor = seen.rates.tolist(), self._floor(seen.reach)
        pairs = list(enumerate(zip(declared, rates, strict=True)))
        off = [(h, a, b) for h, (a, b) in pairs if abs(a - b) > self.tolerance * abs(a) + floor]
        if not off:
            return
        note = self._explained(layer, declared, rates, floor)
        if len(off) < len(pairs):
            for head, a, b in off:
                yield Discrepancy(
                    f"decay of head {head}", _rate(a), _rate(b), note, head=head, residual=abs(b / a - 1)
                )
            return
        head, a, b = off[0]
        residual = max(abs(b / a - 1) for _, a, b in off)
        yield Discrepancy("decay", f"{_rate(a)} in head {head}", _rate(b), note, residual=residual)

    def _explained(self, layer: int, declared: tuple[float, ...], rates: list[float], floor: float) -> str:
        """What would give the measured rates, in words; "" if nothing known does."""

        def near(others: tuple[float, ...]) -> bool:
            pairs = zip(others, rates, strict=True)
            return all(abs(a - b) <= self.tolerance * abs(a) + floor for a, b in pairs)

        if near(tuple(-rate for rate in declared)):
            return "weights grow with the lag instead of decaying"
        for other in range(self.declaration.number("num_hidden_layers")):
            if other != layer and near(declared_decays(self.declaration, other)):
                return f"the rates of layer {other}"
        order = sorted(range(len(rates)), key=rates.__getitem__)
        reordered = dict(zip(order, sorted(declared), strict=True))
        if near(tuple(reordered[head] for head in range(len(rates)))):
            return "the same rates in another order of heads"
        ratio = rates[0] / declared[0]
        return f"all heads, {ratio:.3g} times" if near(tuple(ratio * rate for rate in declared)) else ""

    def _law(self, seen: FittedDecay) -> Iterator[Discrepancy]:
        """Where weights are no exponential of the lag, or keys after the query are read."""
        if seen.ahead > max(1e-6, self.noise):
            share = f"up to {seen.ahead:.2g} of the weight at lag 0"
            yield Discrepancy("direction of the mask", "past keys alone", "past and future keys", share)
        worst = int(seen.departures.argmax())
        departure = seen.departures[worst].item()
        if departure > max(1e-3, 4 * self.noise):
            got = f"{'none' if departure == torch.inf else f'{departure:.2g} off'} at lag {seen.lags[worst]}"
            heads = (seen.departures > max(1e-3, 4 * self.noise)).nonzero().flatten().tolist()
            note = f"logarithms of weights; heads {', '.join(map(str, heads))}"
            yield Discrepancy("decay over the lag", LAW, got, note)

    def _served(self, seen: FittedDecay, served: FittedDecay) -> Iterator[Discrepancy]:
        """Where a cache changes the rates or the law."""
        floor = self._floor(seen.reach)
        for head, (a, b) in enumerate(zip(seen.rates.tolist(), served.rates.tolist(), strict=True)):
            if abs(a - b) > self.tolerance * abs(a) + floor:
                yield self._behind(head, _rate(a), _rate(b))
                return
        limit = max(1e-3, 4 * self.noise)
        worse = (served.departures > limit) & (seen.departures <= limit)
        if bool(worse.any()):
            head = int((served.departures * worse).argmax())
            yield self._behind(head, LAW, f"not at lag {served.lags[head]}")

    def _behind(self, head: int, plain: str, cached: str) -> Discrepancy:
        return Discrepancy(
            "decay in cached decoding",
            plain,
            cached,
            f"head {head}",
            by="in a plain forward pass",
        )


def _rate(rate: float) -> str:
    return f"{rate:.5g} per position"


def at_origin(weights: Float[Tensor, "b t h"], origins: tuple[int, ...]) -> Float[Tensor, "b h"]:
    """Weights at lag 0."""
    return torch.stack([row[origin] for row, origin in zip(weights, origins, strict=True)])


def fit_decay(weights: Float[Tensor, "b t h"], origins: tuple[int, ...]) -> FittedDecay:
    r"""The exponential through the weights of one key, by least squares on their logarithms.

    The line :math:`-s n` goes through the weight at lag 0. Lags are fitted from 0 on, as long as the weight
    lies within a factor of `FAINT`; at all lags where the exponential does, a weight must follow it.

    Args:
        weights: What each head reads at each position, with shape (b, t, h); not zero at lag 0.
        origins: Position of the key in each row.
    """
    start = at_origin(weights, origins)
    logs, before = [], 0.0
    for row, origin, first in zip(weights, origins, start, strict=True):
        ratio = row / first
        before = max(before, ratio[:origin].abs().max().item() if origin else 0.0)
        logs.append(ratio[origin:].clamp(min=0).log())
    fits = [_head_fit([one[:, head] for one in logs]) for head in range(weights.shape[-1])]
    return FittedDecay(
        rates=torch.tensor([rate for rate, _, _ in fits], dtype=torch.float64),
        departures=torch.tensor([departure for _, departure, _ in fits], dtype=torch.float64),
        lags=tuple(lag for _, _, lag in fits),
        reach=max(map(len, logs)) - 1,
        ahead=before,
    )


def _head_fit(logs: list[Float[Tensor, " lags"]]) -> tuple[float, float, int]:
    """Rate of one head, the largest departure from its exponential, and the lag of that."""
    limit = -torch.tensor(FAINT).log().item()
    lags = [torch.arange(len(one), dtype=torch.float64) for one in logs]
    seen = [(one.abs() <= limit).cumprod(0).bool() for one in logs]
    squares = sum(float(lag[ok].square().sum()) for lag, ok in zip(lags, seen, strict=True))
    products = sum(float((lag * one)[ok].sum()) for lag, one, ok in zip(lags, logs, seen, strict=True))
    rate = -products / squares if squares else limit  # or faster
    departure, at = 0.0, 0
    for lag, one in zip(lags, logs, strict=True):
        off = (one + rate * lag).abs().nan_to_num(torch.inf, torch.inf)
        off[(rate * lag).abs().nan_to_num(torch.inf, torch.inf) > limit] = 0
        if off.max() > departure:
            departure, at = off.max().item(), int(off.argmax())
    return rate, departure, at
