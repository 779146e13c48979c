"""How queries and keys turn at far positions: which heads depart from what is declared, and by what."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import torch
from jaxtyping import Bool, Complex, Float
from torch import Tensor

from spectrope.checkpoints.adapters import Call
from spectrope.checkpoints.audit.compare import Discrepancy
from spectrope.checkpoints.audit.heads import owner
from spectrope.checkpoints.audit.layout import SUMMED, Layout
from spectrope.checkpoints.audit.precision import DTYPES
from spectrope.checkpoints.audit.sides import Place

EXPLAINED = 0.1  # Largest share of a departure that another reading of the positions may leave.
CLEAR = 0.1  # Share of the largest departure from which on a head departs, too.
SHIFTS = 16  # Positions by which tokens may be ahead or behind.


def even(x: Float[Tensor, "*n t d"]) -> Float[Tensor, "*n t d"]:
    """Vectors without a growth with the position."""
    sizes = x.norm(dim=-1, keepdim=True).clamp(min=1e-300)
    return x * (sizes[..., :1, :] / sizes)


def turns_of(call: Call, layout: Layout) -> dict[Place, Complex[Tensor, "t m"]]:
    """What turns the pairs of each head from the first token's to each token's, weighted by their energy.

    Args:
        call: Of a layer, with the same content at every position.
        layout: Of the pairs.
    """
    turns: dict[Place, Complex[Tensor, "t m"]] = {}
    for side, x in (("queries", call.q), ("keys", call.k)):
        z = layout.planes(even(x.double()))
        turns |= {(side, head): one for head, one in enumerate((z * z[:, :, :1].conj()).sum(0))}
    return turns


@dataclass(frozen=True, eq=False)
class FarRotation:
    """The rotation of a layer at far positions, against the declared one.

    Args:
        turns: By side and head; see `turns_of`.
        frequencies: Radians per position of each pair, as declared.
        positions: Of the tokens, ascending from 0.
        bound: Departure of each phase that is left to rounding, in radians.
    """

    turns: Mapping[Place, Complex[Tensor, "t m"]]
    frequencies: Float[Tensor, " m"]
    positions: Float[Tensor, " t"]
    bound: Float[Tensor, "t m"]

    def findings(self) -> Iterator[Discrepancy]:
        """One finding of the layer, of one of its sides, or of each head that departs."""
        every = [place for place, turn in self.turns.items() if bool(turn.any())]  # Not pruned.
        wrong = [place for place in every if self._departs([place])]
        if not wrong and not self._departs(every):
            return
        for words, places in self._parts(wrong):
            together = (places, wrong, every, wrong[:1])
            found = self._explained(next(some for some in together if some and self._departs(some)))
            head = places[0][1] if len(places) == 1 else None
            yield replace(found, what=f"{found.what}{words}", head=head)

    def _parts(self, wrong: Sequence[Place]) -> Iterator[tuple[str, Sequence[Place]]]:
        """The heads that depart, together where they are whole sides, and how they are called.

        Args:
            wrong: Heads that depart if they are looked at alone; others may depart clearly beside them.
        """
        off = {place: self._distance(turn) for place, turn in self.turns.items()}
        bound = CLEAR * max(off.values())
        clear = [place for place, distance in off.items() if distance >= bound or place in wrong]
        for side in ("queries", "keys"):
            if clear == [place for place in self.turns if place[0] == side]:
                yield f" of {side} alone", clear
                return
        if len(clear) == len(self.turns):
            yield "", clear
            return
        heads = {side: sum(of == side for of, _ in self.turns) for side in ("queries", "keys")}
        for place in clear:
            name = owner(place, grouped=heads["keys"] < heads["queries"])
            yield f" of {place[0]} of {name}", [place]

    def _distance(self, turn: Complex[Tensor, "t m"]) -> float:
        """Largest distance of what turns one head's pairs from what should, against its mean size."""
        sizes = turn.abs()
        wanted = torch.polar(sizes, self.positions[:, None] * self.frequencies)
        return ((turn - wanted).abs().max() / sizes.mean().clamp(min=1e-300)).item()

    def _together(self, places: Sequence[Place]) -> Complex[Tensor, "t m"]:
        return reduce(torch.add, (self.turns[place] for place in places))

    def _departs(self, places: Sequence[Place]) -> bool:
        """Whether some heads together depart at any token."""
        return bool(self._wrong(places).any())

    def _wrong(self, places: Sequence[Place]) -> Bool[Tensor, " t"]:
        """Tokens at which pairs of some heads together have turned by other angles than declared."""
        angles = self.positions[:, None] * self.frequencies
        return (_apart(self._together(places), angles) > self.bound).any(1)

    def _explained(self, places: Sequence[Place]) -> Discrepancy:
        """What far positions are instead of those of the tokens, or how their angles were rounded."""
        c, p = self._together(places), self.positions
        first, worst = int(p[self._wrong(places)][0]), _apart(c, p[:, None] * self.frequencies).max().item()
        for words, angles in _readings(p, self.frequencies, first):
            if _apart(c, angles - angles[:1]).max().item() <= max(EXPLAINED * worst, 1e-3):
                if words.startswith(tuple(DTYPES)):
                    note = f"as when computed in low precision: {words} rounded"
                    got = f"off by up to {worst:.2g} rad, from position {first} on"
                    return Discrepancy("angles", "in proportion to position", got, note, residual=worst)
                return Discrepancy("positions", "those of the tokens", words)
        got = f"others from position {first} on, off by up to {worst:.2g} rad"
        return Discrepancy("frequencies", "those declared for this length", got, residual=worst)


def _apart(c: Complex[Tensor, "t m"], angles: Float[Tensor, "t m"]) -> Float[Tensor, "t m"]:
    """Departures of phases from angles, in radians, beyond those that rounded sums leave in small pairs."""
    sizes = c.abs().clamp(min=1e-300)
    lost = 10 * SUMMED * (sizes.mean() / sizes).sqrt()
    departures = (c * torch.polar(torch.ones_like(angles), -angles)).angle().abs()
    return (departures - lost).clamp(min=0)


def _readings(
    p: Float[Tensor, " t"], frequencies: Float[Tensor, " m"], first: int
) -> Iterator[tuple[str, Float[Tensor, "t m"]]]:
    """Angles at positions that are not read, stay, start again, or are rounded."""
    yield (
        "are counted within the call, whatever position_ids say",
        torch.arange(len(p))[:, None] * frequencies,
    )
    known = p[p < first].max()
    for end in dict.fromkeys((first - 1, first, int(known), first + 1)):
        yield f"stay at {end} from token {end} on", p.clamp(max=end)[:, None] * frequencies
        if end > 0:
            yield f"restart every {end} tokens", (p % end)[:, None] * frequencies
    for bits in (8, 16):
        half = 2 ** (bits - 1)
        yield f"overflow integers of {bits} bits", ((p + half) % 2**bits - half)[:, None] * frequencies
    yield f"are 0 from token {first} on", p.where(p < first, 0.0)[:, None] * frequencies
    for by in range(1, SHIFTS + 1):
        for way, shift in (("ahead", by), ("behind", -by)):
            words = f"are {by} {way} from token {first} on"
            yield words, (p + shift * (p >= first))[:, None] * frequencies
    for name, dtype in DTYPES.items():
        low = p.to(dtype).double()[:, None]
        yield f"{name} positions", low * frequencies
        rounded = frequencies.to(dtype).double()
        yield f"{name} frequencies", p[:, None] * rounded
        yield f"{name} angles", (p[:, None] * frequencies).to(dtype).double()
        yield f"{name} positions and angles", (low * frequencies).to(dtype).double()
        yield f"{name} frequencies, positions and angles", (low * rounded).to(dtype).double()
