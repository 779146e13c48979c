"""Faults of how far pairs turn, which pairs they are, and in which sense."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from spectrope.checkpoints.adapters.substitute import Given
from spectrope.checkpoints.audit.layout import Layout
from spectrope.checkpoints.audit.substitution import multiplied
from spectrope.checkpoints.parity.faults.base import (
    ForwardHook,
    SimulatedChange,
    Simulation,
    angles_of,
    as_given,
    both_turned,
    grid,
    turned,
    unrotated,
)
from spectrope.checkpoints.parity.sites import AttentionSite, LocalCopy, places
from spectrope.encodings import Llama3, YaRN, geometric

BASES = tuple(sorted({*grid(1e2, 1e8, 49), 1e4, 5e5, 1e6}))
FACTORS = tuple(sorted({*grid(1 / 16, 16.0, 33), 0.25, 0.5, 2.0, 4.0, 8.0}))
EXTENSIONS = (1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 16.0, 32.0)
ORIGINALS = (1, 2, 4, 8)  # Shares of the declared length at which an extension may begin.
PAIRINGS = {"halves": "adjacent", "adjacent": "halves"}


def rotation_faults(copy: LocalCopy) -> Iterator[Simulation]:
    """Faults of rotary layers."""
    sites = [site for site in copy.sites.values() if site.layout is not None]
    if not sites:
        return
    yield Simulation(("SPE101",), "base {x:.6g}", _frequencies(_rebased), BASES, "logarithmic")
    yield Simulation(
        ("SPE102",), "frequencies divided by {x:.4g}", _frequencies(lambda x, site: site.frequencies / x),
        FACTORS, "logarithmic",
    )  # fmt: skip
    if any(site.scaled for site in sites):
        yield Simulation(("SPE102",), "no scaling", _frequencies(lambda x, site: site.unscaled))
    for share in ORIGINALS:
        trained = max(site.trained // share for site in sites)
        since = f"scaling {{kind}} by {{{{x:.4g}}}} from {trained} positions".format
        yield Simulation(
            ("SPE102",), since(kind="yarn"), _frequencies(_yarn(share)), EXTENSIONS, "logarithmic"
        )
        warm = f"{since(kind='yarn')} with its attention factor"
        yield Simulation(("SPE102",), warm, _warm(_frequencies(_yarn(share))), EXTENSIONS, "logarithmic")
        yield Simulation(
            ("SPE102",), since(kind="llama3"), _frequencies(_llama3(share)), EXTENSIONS, "logarithmic"
        )
    most = max(len(site.frequencies) for site in sites)
    yield Simulation(
        ("SPE102",), "the last {x} frequencies are 0", _frequencies(_unwritten),
        tuple(map(float, range(1, most))), "whole",
    )  # fmt: skip
    yield Simulation(("SPE102",), "frequencies rounded to bfloat16", _frequencies(_rounded(torch.bfloat16)))
    yield Simulation(("SPE102",), "frequencies rounded to float16", _frequencies(_rounded(torch.float16)))
    if next(copy.model.parameters()).dtype is torch.float32:
        yield Simulation(("SPE106",), "angles computed in bfloat16", _low_angles)
    else:  # Turning further what is already rounded would round once more than the fault does.
        name = "angles computed in bfloat16"
        yield Simulation(("SPE106",), name, as_given, hooks=_low_tables_of_angles, in_layers=False)
    yield Simulation(("SPE106",), "sines and cosines in bfloat16", _low_tables)
    yield Simulation(("SPE104", "SPE711"), "pairs in the other order", _other_pairs("qk"))
    yield Simulation(("SPE104", "SPE711"), "pairs of queries in the other order", _other_pairs("q"))
    yield Simulation(("SPE104", "SPE711"), "pairs of keys in the other order", _other_pairs("k"))
    yield Simulation(
        ("SPE105",), "{x:.4g} of the width rotated", _partly, (0.25, 0.5, 0.75, 1.0), "listed",
        lambda site: site.layout is not None and site.layout.start == 0,
    )  # fmt: skip
    yield Simulation(("SPE107",), "rotation in the other sense", _reversed)
    yield Simulation(("SPE110",), "no rotation", lambda x, site, given: unrotated(given, site))


def _frequencies(of: Callable[[float, AttentionSite], Float[Tensor, " m"]]) -> SimulatedChange:
    """Turn by other frequencies."""

    def change(x: float, site: AttentionSite, given: Given) -> Given:
        difference = (of(x, site) - site.frequencies).to(given.q.device)
        return both_turned(given, site, places(given) * difference)

    return change


def _rebased(x: float, site: AttentionSite) -> Float[Tensor, " m"]:
    """The frequencies under another base, with whatever scales them left as it is."""
    m = len(site.frequencies)
    return site.frequencies * (x / site.base) ** (-torch.arange(m, dtype=torch.float64) / m)


def _yarn(share: int) -> Callable[[float, AttentionSite], Float[Tensor, " m"]]:
    """YaRN, whose trained length is such a share of the declared one."""

    def frequencies(x: float, site: AttentionSite) -> Float[Tensor, " m"]:
        schedule = YaRN(base=site.base, factor=x, trained_length=max(site.trained // share, 1))
        return schedule.frequencies(2 * len(site.frequencies))

    return frequencies


def _llama3(share: int) -> Callable[[float, AttentionSite], Float[Tensor, " m"]]:
    """The schedule of Llama 3, likewise."""

    def frequencies(x: float, site: AttentionSite) -> Float[Tensor, " m"]:
        schedule = Llama3(base=site.base, factor=x, trained_length=max(site.trained // share, 1))
        return schedule.frequencies(2 * len(site.frequencies))

    return frequencies


def _warm(change: SimulatedChange) -> SimulatedChange:
    """The same, with YaRN's factor on queries and on keys."""

    def warmed(x: float, site: AttentionSite, given: Given) -> Given:
        assert site.layout is not None
        gain, given = YaRN(factor=x).gain, change(x, site, given)
        q = given.q.clone()
        q[..., site.layout.start : site.layout.start + site.layout.width] *= gain**2
        return replace(given, q=q)

    return warmed


def _unwritten(x: float, site: AttentionSite) -> Float[Tensor, " m"]:
    m = len(site.frequencies)
    return site.frequencies * (torch.arange(m) < m - round(x))


def _rounded(dtype: torch.dtype) -> Callable[[float, AttentionSite], Float[Tensor, " m"]]:
    return lambda x, site: site.frequencies.to(dtype).double()


def _low_angles(x: float, site: AttentionSite, given: Given) -> Given:
    angles = angles_of(given, site)
    low = places(given).bfloat16() * site.frequencies.to(given.q.device).bfloat16()
    return both_turned(given, site, low.double() - angles)


def _low_tables_of_angles(
    x: float, copy: LocalCopy, layers: Sequence[int]
) -> Iterator[tuple[nn.Module, ForwardHook]]:
    """Rotary modules that return sines and cosines of angles in bfloat16."""

    def tables(module: nn.Module, given: object, out: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        frequencies, gain = module.get_buffer("inv_freq"), getattr(module, "attention_scaling", 1.0)
        t = torch.arange(out[0].shape[-2], device=out[0].device)[:, None]

        def of(angles: Tensor) -> tuple[Tensor, Tensor]:
            both = torch.cat([angles, angles], -1).float()
            return tuple((gain * f).to(out[0].dtype).expand_as(out[0]) for f in (both.cos(), both.sin()))  # pyright: ignore[reportReturnType]

        sound = of(t * frequencies.float())
        if any(not torch.allclose(a, b, atol=0.02) for a, b in zip(sound, out, strict=True)):
            raise RuntimeError("this rotary module makes other tables")
        return of(t.bfloat16() * frequencies.bfloat16())

    for module in copy.model.modules():
        if "inv_freq" in dict(module.named_buffers(recurse=False)):
            yield module, tables


def _low_tables(x: float, site: AttentionSite, given: Given) -> Given:
    assert site.layout is not None
    angles = angles_of(given, site)
    low = torch.complex(angles.float().cos().bfloat16().float(), angles.float().sin().bfloat16().float())
    factors = (low * torch.polar(torch.ones_like(angles), -angles)).to(torch.complex64)
    q, k = (multiplied(side, site.layout, factors) for side in (given.q, given.k))
    return replace(given, q=q, k=k)


def _other_pairs(sides: str) -> SimulatedChange:
    """Turn the coordinates that the other layout pairs."""

    def change(x: float, site: AttentionSite, given: Given) -> Given:
        assert site.layout is not None
        other = replace(site.layout, pairing=PAIRINGS[site.layout.pairing])
        angles = angles_of(given, site)

        def again(side: Tensor) -> Tensor:
            return turned(turned(side, site.layout or other, -angles), other, angles)

        q = again(given.q) if "q" in sides else given.q
        k = again(given.k) if "k" in sides else given.k
        return replace(given, q=q, k=k)

    return change


def _partly(x: float, site: AttentionSite, given: Given) -> Given:
    """Turn another share of the coordinates, by the frequencies that a head of that width would have."""
    assert site.layout is not None
    width = round(x * given.q.shape[-1] / 2) * 2
    if width == site.layout.width:
        return given
    plain, layout = unrotated(given, site), Layout(site.layout.pairing, 0, width)
    angles = places(given) * geometric(site.base, width).to(given.q.device)
    return replace(given, q=turned(plain.q, layout, angles), k=turned(plain.k, layout, angles))


def _reversed(x: float, site: AttentionSite, given: Given) -> Given:
    return both_turned(given, site, -2 * angles_of(given, site))
