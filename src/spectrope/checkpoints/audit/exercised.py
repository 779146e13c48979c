"""Compare the output of an attention function with the softmax of the masked logits."""

import itertools
from collections.abc import Iterator
from dataclasses import replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from spectrope.checkpoints.adapters import Call
from spectrope.checkpoints.audit.bias import row_centred
from spectrope.checkpoints.audit.compare import Discrepancy
from spectrope.checkpoints.probes.exercise import Exercise

FAINT = 1e-25  # Weights below it are lost to rounding in float32.
BLOCK = 2**20  # Weights that are looked at together.
WITHIN = 1e-3  # Largest departure of a weight, of at most 1, that is left to rounding.
MASKS = frozenset({"SPE201", "SPE202"})
BIASES = frozenset({"SPE110", "SPE301", "SPE302", "SPE303"})
OTHER = "other weights"
RESPECT, EXPECTED = "attention function", "softmax of the masked logits, times the values"


def carried_out(call: Call, seen: Exercise | None) -> tuple[Call, list[Discrepancy]]:
    """A call with the mask, factor, cap, bias and sinks that the attention function applies.

    They are those that it was given wherever they explain its pattern. A pattern that none of them explains
    is a finding.

    Args:
        call: As the function received it.
        seen: What the function made of random inputs; None where it was not run.
    """
    if seen is None:
        return call, list(_used(call))
    if _explains(call, seen):
        wrong = (seen.errors > 4 * WITHIN).nonzero().flatten().tolist()
        return call, list(_named(wrong, len(seen.q), "its weights times other values")) if wrong else []
    masked = replace(call, allowed=_seen(seen))
    others = itertools.chain(_others(call, seen), _others(masked, seen), _sunk(call, seen))
    if (explained := next((other for other in others if _explains(other, seen)), None)) is not None:
        return explained, []
    leaks = bool((masked.allowed & ~call.allowed[:1].to(masked.allowed.device)).any())
    # Weights that are missing and explain nothing are no mask; nor are those that are below 0.
    kept = masked if leaks and not _signed(seen) else call
    return kept, list(_unexplained(kept, seen))


def misapplied(given: Call, applied: Call) -> frozenset[str]:
    """Codes of findings about what an attention function applies otherwise than it was given it."""
    masks = torch.broadcast_tensors(given.allowed[0].cpu(), applied.allowed[0].cpu())
    others = {
        MASKS: not torch.equal(*masks),
        BIASES: given.bias is not applied.bias,
        frozenset({"SPE404"}): given.scale != applied.scale,
        frozenset({"SPE405"}): given.softcap != applied.softcap,
        frozenset({"SPE406"}): given.sinks is not applied.sinks,
    }
    return frozenset().union(*(codes for codes, other in others.items() if other))


def _used(call: Call) -> Iterator[Discrepancy]:
    """Where a kernel whose code shows its logits multiplies values by other weights than their softmax."""
    if call.pattern is None or call.logits is None:
        return
    eps = torch.finfo(call.pattern.dtype).eps
    each = zip(call.logits.unbind(1), call.pattern.unbind(1), strict=True)
    off = torch.stack(
        [(one.float().softmax(-1) - pattern.float()).abs().amax((0, 2)) for one, pattern in each]
    )
    wrong = off.amax(1) > max(WITHIN, 4 * eps)
    if bool(wrong.any()):
        yield from _named(wrong.nonzero().flatten().tolist(), len(off), OTHER, _by_how_much(off[wrong]))


def _seen(seen: Exercise) -> Bool[Tensor, "1 h n m"]:
    """Keys that get any weight, by head where heads differ."""
    allowed = seen.pattern > 0
    shared = bool((allowed == allowed[:1]).all())
    return (allowed[:1] if shared else allowed)[None]


def _others(call: Call, seen: Exercise) -> Iterator[Call]:
    """The call with another factor, or without its cap, bias or sinks."""
    options = [(one, None) if one is not None else (None,) for one in (call.softcap, call.bias, call.sinks)]
    for cap, bias, sinks in itertools.product(*options):
        without = replace(call, softcap=cap, bias=bias, sinks=sinks)
        yield without
        yield replace(without, scale=_factor(without, seen))


def _sunk(call: Call, seen: Exercise) -> Iterator[Call]:
    r"""The call with the sinks that take what the weights lack of 1.

    With :math:`Z = \sum_j e^{L_j}` and weights that sum to p, a sink is :math:`\log Z + \log(1/p - 1)`. It is
    that of the query whose weights lack most, where rounding matters least.
    """
    sinks = []
    for heads in _blocks(seen):
        total, kept = _scores(call, seen, heads).double().logsumexp(-1), seen.pattern[heads].double().sum(-1)
        least = kept.masked_fill(~total.isfinite(), torch.inf).argmin(-1, keepdim=True)
        sinks.append((total + (1 / kept - 1).clamp(min=0).log()).gather(-1, least)[:, 0])
    found = torch.cat(sinks)
    if bool(found.isfinite().all()):
        yield replace(call, sinks=found.float())


def _blocks(seen: Exercise) -> Iterator[slice]:
    """Heads that are looked at together: few, if their patterns are large."""
    h, n, m = seen.pattern.shape
    together = max(1, BLOCK // (n * m))
    return (slice(start, start + together) for start in range(0, h, together))


def _of(heads: slice, x: Tensor) -> Tensor:
    """The part of some heads, of something that each head has or all share."""
    return (x if len(x) == 1 else x[heads]).cpu()


def _scores(call: Call, seen: Exercise, heads: slice) -> Float[Tensor, "h n m"]:
    """Masked logits of some heads in an exercise, under a call's options."""
    scores = call.capped((1.0 if call.scale is None else call.scale) * seen.products(heads))
    if call.bias is not None:
        scores = scores + _of(heads, call.bias[0]).to(scores)
    return scores.masked_fill(~_of(heads, call.allowed[0]), -torch.inf)


def _pattern(call: Call, seen: Exercise, heads: slice) -> Float[Tensor, "h n m"]:
    """Softmax of these, and of sinks beside them."""
    scores = _scores(call, seen, heads)
    if call.sinks is not None:
        sinks = call.sinks[0] if call.sinks.ndim == 4 else call.sinks.reshape(-1, 1, 1)
        sink = _of(heads, sinks).to(scores).expand(*scores.shape[:2], 1)
        return torch.cat([scores, sink], -1).softmax(-1)[..., :-1]
    return scores.softmax(-1)


def _explains(call: Call, seen: Exercise) -> bool:
    """Whether a call's options give the weights, and none at all to keys that it hides."""
    allowed = call.allowed[0].cpu()
    hidden = ~allowed & allowed.any(-1, keepdim=True)
    leaks = (bool((seen.pattern[heads] * _of(heads, hidden) > FAINT).any()) for heads in _blocks(seen))
    return not any(leaks) and not bool(_wrong(call, seen).any())


def _wrong(call: Call, seen: Exercise) -> Bool[Tensor, " h"]:
    """Heads whose weights a call does not explain."""
    return (_departures(call, seen) > WITHIN).any(-1)


def _departures(call: Call, seen: Exercise) -> Float[Tensor, "h n"]:
    """By how much each query's weights are off at most; 0 for queries that see nothing."""
    seeing = call.allowed[0].cpu().any(-1)
    off = torch.cat([(_pattern(call, seen, h) - seen.pattern[h]).abs().amax(-1) for h in _blocks(seen)])
    return off.masked_fill(~seeing.expand_as(off), 0.0).nan_to_num(1.0)


def _factor(call: Call, seen: Exercise) -> float:
    """The factor on products that explains logarithms of the weights best, without a cap."""
    allowed = call.allowed[0].cpu() & (seen.pattern > FAINT)
    logs = seen.pattern.double().clamp(min=1e-300).log()
    if call.bias is not None:
        logs = logs - call.bias[0].double().cpu()
    logits, products = row_centred(logs, allowed), row_centred(seen.products().double(), allowed)
    return ((logits * products).sum() / products.square().sum().clamp(min=1e-300)).item()


def _signed(seen: Exercise) -> bool:
    """Whether some weights are below 0, which those of no softmax are."""
    return bool((seen.pattern < -WITHIN).any())


def _unexplained(call: Call, seen: Exercise) -> Iterator[Discrepancy]:
    """The heads that nothing explains, and what they look like."""
    wrong = _wrong(call, seen)
    if not bool(wrong.any()):
        return
    if seen.groups > 1 and _tiles(call, seen):
        heads = len(seen.k)
        yield Discrepancy(RESPECT, EXPECTED, f"query head h reads key-value head h mod {heads}")
        return
    looks = _looks(call, seen, wrong)
    note = _by_how_much(_departures(call, seen)[wrong]) if looks == OTHER else ""
    yield from _named(wrong.nonzero().flatten().tolist(), len(wrong), looks, note)


def _looks(call: Call, seen: Exercise, wrong: Bool[Tensor, " h"]) -> str:
    """What the weights of heads that nothing explains look like."""
    sums = seen.pattern.sum(-1)
    if not bool(seen.pattern[wrong].isfinite().all()):
        return "weights that are not finite"
    if _signed(seen):
        return f"weights down to {seen.pattern.min():.3g}, as where outputs are changed after softmax"
    if bool((sums[wrong] - 1).abs().amax() > WITHIN) and call.sinks is None:
        columns = bool((seen.pattern.sum(-2)[wrong] - 1).abs().amax() <= WITHIN)
        return "weights sum to 1 over the queries" if columns else f"weights sum to up to {sums.max():.4g}"
    even = replace(
        seen, q=seen.q / seen.q.norm(dim=-1, keepdim=True), k=seen.k / seen.k.norm(dim=-1, keepdim=True)
    )
    if _explains(replace(call, scale=_factor(call, even)), even):
        return "weights as of queries and keys that are normalised in the function"
    if order := _order(call, seen):
        return f"heads have the weights of heads {', '.join(map(str, order))}"
    return OTHER


def _by_how_much(off: Float[Tensor, "h n"]) -> str:
    """By how much weights are off at most, and which query's."""
    return f"off by up to {off.max():.2g}, most at query {int(off.amax(0).argmax())}"


def _order(call: Call, seen: Exercise) -> list[int]:
    """The heads whose weights the heads have, if they are the declared ones in another order."""
    wanted = torch.cat([_pattern(call, seen, heads) for heads in _blocks(seen)])
    order = [int((wanted - one).abs().amax((1, 2)).nan_to_num(1.0).argmin()) for one in seen.pattern]
    off = (wanted[order] - seen.pattern).abs().amax().nan_to_num(1.0)
    return order if bool(off <= WITHIN) else []


def _tiles(call: Call, seen: Exercise) -> bool:
    """Whether query heads take key-value heads in turn instead of in runs."""
    turned = replace(seen, k=seen.k.repeat(seen.groups, 1, 1))
    return _explains(call, turned)


def _named(heads: list[int], of: int, text: str, note: str = "") -> Iterator[Discrepancy]:
    """One finding of all heads, or one of each."""
    if len(heads) == of:
        yield Discrepancy(RESPECT, EXPECTED, text, note)
        return
    for head in heads:
        yield Discrepancy(f"{RESPECT} of head {head}", EXPECTED, text, note, head=head)
