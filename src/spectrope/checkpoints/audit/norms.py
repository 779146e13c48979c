"""Whether the norms of queries and keys are applied as their class does it, and what weights and a learned
factor make of both."""

import copy
import math
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from spectrope.checkpoints.adapters import FAILURES
from spectrope.checkpoints.audit.compare import Discrepancy, is_near
from spectrope.checkpoints.audit.heads import owner
from spectrope.checkpoints.audit.starts import match_of
from spectrope.checkpoints.probes.constant_content import LateNorm, LayerKernel

VANISHING = 1e-3  # Share of its largest value below which a learned factor leaves nothing to read.
ALIKE = 1e-3  # Largest departure of a norm's output that is left to rounding, relative to its largest value.
FORMS = ("its input over its root mean square", "its input less its mean, over its standard deviation")
EPSILONS = ("eps", "variance_epsilon", "epsilon")  # Names under which classes keep it.
FAINTEST = 1e-30  # Mean square of a head that has been pruned.
OF_SIDES = re.compile(r"^(q|k|qk|query|key|q_a|kv_a)_?(layer)?_?(norm|ln)$")  # "a": of latents.


def declared_norms(model: nn.Module) -> Mapping[str, nn.Module]:
    """Norms of queries and keys, by dotted name, as the model's class builds them for its configuration.

    The class is built anew without weights; where it cannot be, the model's own norms are those expected.
    """
    built = model
    if hasattr(model, "config_class"):
        try:
            with torch.device("meta"), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                built = type(model)(model.config)  # pyright: ignore[reportCallIssue]
        except (ImportError, *FAILURES):  # a kernel that this machine lacks, or fields edited since
            built = model
    return {
        name: module for name, module in built.named_modules() if OF_SIDES.search(name.rpartition(".")[2])
    }


def norm_findings(
    kernel: LayerKernel, model: nn.Module, declared: Mapping[str, nn.Module], noise: float
) -> Iterator[Discrepancy]:
    """Norms of one layer that are missing, are of another class or form, or run elsewhere or not at all."""
    present = dict(model.named_modules(remove_duplicate=False))
    for name, wanted in declared.items():
        if not name.startswith(f"{kernel.call.module}."):
            continue
        attention, _, part = name.rpartition(".")
        side = "queries and keys" if "qk" in part else "queries" if part.startswith("q") else "keys"
        norm, kind, taken = present.get(name), type(wanted).__name__, kernel.taken.get(name)
        got = "none" if norm is None else type(norm).__name__
        alike = (one for one in declared if one != name and present.get(one) is norm)
        twin = "" if norm is None else next(alike, "")
        if twin and name not in kernel.ran:
            twin = twin.rpartition(".")[2]
            yield Discrepancy(f"norm of {side}", kind, twin, f"{part} is the same module as {twin}")
        elif norm is None or name not in kernel.ran:
            note = "is another module" if got != kind else "is not applied"
            yield Discrepancy(f"norm of {side}", kind, got if got != kind else "none", f"{part} {note}")
        elif not twin and (other := _misplaced(kernel, attention, part)):
            yield Discrepancy(f"norm of {side}", kind, f"that of {other}", f"{part} takes the {other}")
        else:
            wrong = _departure(norm, wanted, kernel.ran[name], taken, noise)
            if got != kind and wrong != "":
                yield Discrepancy(f"norm of {side}", kind, got, f"{part} is another module")
            elif wrong:
                yield Discrepancy(f"norm of {side}", kind, wrong, f"{part} puts them out")


def _misplaced(kernel: LayerKernel, attention: str, part: str) -> str:
    """The side that the norm of the other one takes, by what the projections of both put out; "" if none."""
    taken = kernel.taken.get(f"{attention}.{part}")
    if taken is None or "qk" in part:
        return ""

    def is_of(projection: str) -> bool:
        out = kernel.ran.get(f"{attention}.{projection}")
        width = taken.shape[-1]
        return out is not None and out.shape[-1] >= width and torch.equal(out[0, :width], taken[0])

    own, other, words = ("q_proj", "k_proj", "keys") if part[0] == "q" else ("k_proj", "q_proj", "queries")
    return words if is_of(other) and not is_of(own) else ""


def _departure(
    norm: nn.Module,
    declared: nn.Module,
    out: Float[Tensor, "n d"],
    taken: Float[Tensor, "n d"] | None,
    noise: float,
) -> str | None:
    """What a norm puts out instead of what its class makes of its input, by its weights.

    Returns:
        Words, "" if it is that, None if they cannot be compared.
    """
    weight, bias = (getattr(norm, name, None) for name in ("weight", "bias"))
    w = weight.detach().cpu().double() if isinstance(weight, Tensor) else torch.ones(1).double()
    if taken is None or taken.shape != out.shape or w.shape[-1] not in (1, out.shape[-1]):
        return None
    heads = math.prod(w.shape[:-1])
    taken, out = (x[: len(x) // heads * heads].view(-1, *w.shape[:-1], x.shape[-1]) for x in (taken, out))
    shift = bias.detach().cpu().double() if isinstance(bias, Tensor) else 0.0
    epsilons = _epsilon(declared), _epsilon(norm)

    def is_close(x: Tensor | None) -> bool:
        return x is not None and bool((x - out).abs().max() <= (ALIKE + 8 * noise) * out.abs().max())

    wanted = _applied(declared, norm, taken)
    if wanted is None and type(norm) is type(declared):
        return None
    if epsilons[0] != epsilons[1] and is_close(_applied(declared, norm, taken, epsilons[1])):
        return f"the same with an epsilon of {epsilons[1]:g}"
    if is_close(wanted):
        return ""
    for words, form in zip(FORMS, _normalised(taken, epsilons[0]), strict=True):
        if is_close(form * w + shift):
            return f"{words}, times its weights"
        if is_close(form * (1 + w) + shift):
            return f"{words}, times 1 + its weights"
        if is_close(form):
            return "normalised vectors without its weights"
    known = is_close(taken)
    return "its input unchanged" if known else "neither its input nor its normalised and weighted input"


def _applied(
    declared: nn.Module, norm: nn.Module, x: Float[Tensor, "..."], epsilon: float | None = None
) -> Tensor | None:
    """What a norm's class makes of vectors with its weights; None where it does not take them.

    Args:
        declared: As the class of the model builds it.
        norm: Whose weights it is given.
        x: The vectors.
        epsilon: In the place of the declared one, if given.
    """
    fresh = copy.deepcopy(declared).to_empty(device="cpu").double()
    for name in EPSILONS:
        if epsilon is not None and hasattr(fresh, name):
            setattr(fresh, name, epsilon)
    with suppress(*FAILURES), torch.no_grad():
        fresh.load_state_dict({name: getattr(norm, name) for name in fresh.state_dict()})
        return fresh(x)
    return None


def _normalised(x: Float[Tensor, "n d"], epsilon: float) -> Iterator[Float[Tensor, "n d"]]:
    """Vectors over their root mean square, and less their mean over their standard deviation."""
    for centred in (x, x - x.mean(-1, keepdim=True)):
        yield centred / (centred.square().mean(-1, keepdim=True) + epsilon).sqrt()


def _epsilon(norm: nn.Module) -> float:
    """What a norm adds to the mean square."""
    known = (getattr(norm, name, None) for name in EPSILONS)
    return next((float(value) for value in known if isinstance(value, float | int)), 0.0)


def freed_of_norms(kernel: LayerKernel, model: nn.Module, noise: float) -> LayerKernel:
    """A kernel as it was before the norms that follow its rotation, under which pairs keep no norm.

    Queries and keys are what the norms took where the kernel takes what they put out, times a factor for each
    head. Others are divided by the weights of their norm, and may come from sources over their root mean
    square.
    """
    late, call, sources = kernel.norms_after, kernel.call, kernel.sources
    if not late:
        return kernel
    sides = [call.q, call.k]
    for at, x in enumerate(sides):
        taken = _taken(x, late, noise)
        if taken is not None:
            sides[at] = taken.to(x)
        elif len(late) == len(sides):
            norm = model.get_submodule(late[at].name)
            sides[at], sources = _without_weights(x, norm), [*sources, *_over_rms(sources, x, norm)]
    return replace(kernel, call=replace(call, q=sides[0], k=sides[1]), sources=sources)


def _taken(x: Float[Tensor, "b h t d"], late: Sequence[LateNorm], noise: float) -> Tensor | None:
    """What one of some norms took, where queries or keys are its outputs, times a factor for each head."""
    x = x.double()
    for norm in late:
        outputs, inputs = (_by_head(one, x) for one in (norm.out.double(), norm.taken))
        for out, taken in zip(outputs, inputs, strict=False):
            factor = (x * out).sum((0, 2, 3), keepdim=True) / out.square().sum((0, 2, 3), keepdim=True)
            if bool((x - factor * out).abs().max() <= 8 * noise * x.abs().max()):
                return taken
    return None


def _by_head(x: Float[Tensor, "b ..."], like: Float[Tensor, "b h t d"]) -> Iterator[Tensor]:
    """Vectors of all positions as queries and keys are laid out, in each way that fits."""
    b, h, t, d = like.shape
    if x.shape == (b, t, h * d):
        yield x.unflatten(-1, (h, d)).transpose(1, 2)
    if x.shape == (b, t, h, d):
        yield x.transpose(1, 2)
    if x.shape == like.shape:
        yield x


def _without_weights(x: Float[Tensor, "b h t d"], norm: nn.Module) -> Float[Tensor, "b h t d"]:
    """Queries or keys without the weights of a norm; as they are where it has none."""
    weight = getattr(norm, "weight", None)
    if not isinstance(weight, Tensor) or weight.shape != x.shape[-1:] or not bool((weight != 0).all()):
        return x
    return x / weight.detach().to(x)


def _over_rms(sources: list[Tensor], x: Float[Tensor, "b h t d"], norm: nn.Module) -> Iterator[Tensor]:
    """Sources of whole heads, each head over its root mean square."""
    d, epsilon = x.shape[-1], max(_epsilon(norm), FAINTEST)
    for source in sources:
        if source.shape[1] % d == 0:
            heads = source.double().view(len(source), -1, d)
            yield (heads / (heads.square().mean(-1, keepdim=True) + epsilon).sqrt()).flatten(1)


def behind_norms(kernel: LayerKernel, noise: float) -> Iterator[Discrepancy]:
    """Factors on queries and keys behind the norms that follow their rotation, on all heads of a side or on
    some."""
    outputs, call = [norm.first for norm in kernel.norms_after], kernel.call
    grouped = call.k.shape[1] < call.q.shape[1]
    for side, x in (("queries", call.q), ("keys", call.k)):
        matches = [match_of(x[:, head, 0], outputs, noise) for head in range(x.shape[1])]
        factors = {head: match.factor for head, match in enumerate(matches) if match is not None}
        off = {head: factor for head, factor in factors.items() if not is_near(1.0, factor, noise)}
        first = next(iter(off.values()), 1.0)
        expected = f"{side} as normalised"
        if len(off) == len(matches) and all(is_near(first, factor, noise) for factor in off.values()):
            got, residual = f"{side} times {first:.5g}", abs(first - 1)
            yield Discrepancy("attention scale", expected, got, residual=residual)
            continue
        for head, factor in off.items():
            what = f"attention scale of {side} of {owner((side, head), grouped)}"
            got, residual = f"times {factor:.5g}", abs(factor - 1)
            yield Discrepancy(what, expected, got, head=head, residual=residual)


def freed_of_scaling(kernel: LayerKernel, model: nn.Module, positions: Sequence[int]) -> LayerKernel:
    r"""A kernel without the learned factor on its queries, :math:`a_h \log(p + 1) + b_h` in head h.

    Args:
        kernel: Of a layer.
        model: Whose attention has that factor, as Mistral Large 4's has, or not.
        positions: Of the queries.

    Returns:
        The kernel as it is where the factor vanishes at one of them.
    """
    learned: Any = getattr(model.get_submodule(kernel.call.module), "softmax_scaling", None)
    scale, bias = (getattr(learned, name, None) for name in ("scale", "bias"))
    q = kernel.call.q
    if not isinstance(scale, Tensor) or not isinstance(bias, Tensor) or scale.shape != q.shape[1:2]:
        return kernel
    a, b = (x.detach().cpu().double()[:, None] for x in (scale, bias))
    factor = a * torch.tensor(positions, dtype=torch.float64).log1p() + b
    if bool((factor.abs() < VANISHING * factor.abs().amax(1, keepdim=True)).any()):
        return kernel
    return replace(kernel, call=replace(kernel.call, q=(q.double() / factor[..., None]).to(q)))
