"""Compare what attention functions apply in serving modes with a plain forward pass, call by call."""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from spectrope.checkpoints.adapters import Call, layer_name
from spectrope.checkpoints.audit.bias import row_centred
from spectrope.checkpoints.audit.compare import Discrepancy
from spectrope.checkpoints.audit.exercised import carried_out
from spectrope.checkpoints.audit.turning import varies
from spectrope.checkpoints.probes.exercise import exercise
from spectrope.checkpoints.probes.served import kernel_rows

AGREE = 1e-3  # Share of a kernel's range by which two serving modes may differ.
PLAIN = "that of a plain forward pass"
SIZE = "times as large"
MOVING = "one with values that differ between tokens which are all alike"
ROUNDED = 8  # Roundings of the largest logit by which those of equal keys may differ.


class Refused(Exception):  # noqa: N818
    """A model does not run in a serving mode; the message says how it failed."""


@dataclass(frozen=True, eq=False)
class AppliedCall:
    """What one call of an attention function applies.

    Args:
        logits: Without the mask.
        allowed: Keys that each query sees.
        beside: Its cap of logits and whether it uses sinks, in words.
        strange: How its weights depart from the softmax of these logits, else "".
        moving: Whether its values vary with the position.
    """

    logits: Float[Tensor, "b h i j"]
    allowed: Bool[Tensor, "b h i j"]
    beside: tuple[str, str]
    strange: str
    moving: bool

    def part(self, tokens: slice) -> "AppliedCall":
        """That of some tokens among themselves."""
        return replace(
            self, logits=self.logits[..., tokens, tokens], allowed=self.allowed[..., tokens, tokens]
        )

    def keys_from(self, first: int) -> "AppliedCall":
        """That of the keys from one on."""
        return replace(self, logits=self.logits[..., first:], allowed=self.allowed[..., first:])


def applied_by(call: Call, seed: int, noise: float, row: int = 0) -> AppliedCall:
    """What a call's attention function applies to random inputs in one row; what it is given, if it cannot
    run.

    Args:
        call: Of the serving mode.
        seed: Of the random inputs.
        noise: Relative rounding error of the model's arithmetic.
        row: Of its batch.
    """
    seen = exercise(call, seed, row)
    call, unexplained = carried_out(call if row == 0 else call.row(row), seen)
    strange = "; ".join(dict.fromkeys(one.effective for one in unexplained))
    cap = "no cap of logits" if call.softcap is None else f"a cap of logits at {call.softcap:g}"
    sinks = "no attention sinks" if call.sinks is None else "attention sinks"
    logits, allowed = kernel_rows(call)
    return AppliedCall(logits, allowed, (cap, sinks), strange, _values_move(call, allowed, noise))


def _values_move(call: Call, allowed: Bool[Tensor, "b h i j"], noise: float) -> bool:
    """Whether the values of the first row that queries see vary with the position."""
    seen = allowed[0].flatten(0, 1).any(0)
    if call.v is None or call.v.shape[2] != len(seen) or not bool(seen.any()):
        return False
    return varies(call.v[:1, :, seen].double(), noise)


def bound(wanted: Tensor, plain: Tensor, noise: float) -> Tensor:
    """By how much a kernel may depart from another, row-centred and as it is.

    Args:
        wanted: The other, row-centred.
        plain: The other as it is.
        noise: Relative rounding error of the model's arithmetic.
    """
    return AGREE * wanted.abs().max() + 50 * noise * plain.abs().max()


def differing(
    module: str, kernel: AppliedCall, whole: AppliedCall, rows: slice, noise: float
) -> list[Discrepancy]:
    """Compare rows of a kernel with those of a plain forward pass; keys that a cache has dropped are unseen.

    Args:
        module: Dotted name of the module that attends.
        kernel: Of the rows.
        whole: Of the plain forward pass.
        rows: Positions of the queries.
        noise: Relative rounding error of the model's arithmetic.

    Raises:
        Refused: If logits are not finite.
    """
    about, logits, allowed = named_layer(module), kernel.logits[0], kernel.allowed[0]
    others = beside_logits(kernel, whole) or (MOVING if kernel.moving and not whole.moving else "")
    if others:
        return [Discrepancy(f"kernel of {about}", PLAIN, others, by="expected")]
    plain, seen = (x[0][:, rows, : rows.stop] for x in (whole.logits, whole.allowed))
    if bool(allowed[..., rows.stop :].any()):
        found = "one with keys that are not written yet"
        return [Discrepancy(f"mask of {about}", PLAIN, found, by="expected")]
    logits, allowed = logits[..., : rows.stop], allowed[..., : rows.stop]
    dropped = rows.stop - logits.shape[2]
    if bool(seen[..., :dropped].any()) or not torch.equal(seen[..., dropped:], allowed):
        return [Discrepancy(f"mask of {about}", PLAIN, "another", by="expected")]
    plain = plain[..., dropped:]
    wanted, got = (row_centred(x, allowed) for x in (plain, logits))
    gap = (wanted - got).abs()
    if not bool(gap.isfinite().all()):
        raise Refused("logits are not finite in this arithmetic; compute in float32")
    if bool(gap.max() > bound(wanted, plain, noise)):
        query = rows.start + int(gap.amax((0, 2)).argmax())
        text = f"off by {gap.max().item():.3g} at query {query}"
    else:
        text = "" if _varies(whole, noise) else _other_size(plain, logits, allowed, noise)
    return [Discrepancy(f"kernel of {about}", PLAIN, text, by="expected")] if text else []


def beside_logits(kernel: AppliedCall, whole: AppliedCall) -> str:
    """What differs beside logits and masks, in words; "" if nothing does."""
    if (kernel.strange, kernel.beside) == (whole.strange, whole.beside):
        return ""
    others = [kernel.strange] if kernel.strange != whole.strange else []
    others += [one for one, usual in zip(kernel.beside, whole.beside, strict=True) if one != usual]
    return ", ".join(filter(None, others)) or "another"


def _varies(whole: AppliedCall, noise: float) -> bool:
    """Whether the logits of a query vary over keys; then softmax ignores what they have in common."""
    allowed = whole.allowed[0]
    logits = whole.logits[0].masked_fill(~allowed, 0.0)
    return bool(row_centred(logits, allowed).abs().max() > ROUNDED * noise * logits.abs().max())


def _other_size(
    plain: Float[Tensor, "h i j"],
    logits: Float[Tensor, "h i j"],
    allowed: Bool[Tensor, "h i j"],
    noise: float,
) -> str:
    """How large logits are that are the same for all keys, as by another factor on products; "" if they are
    as large as in a plain forward pass."""
    wanted, got = (x.masked_fill(~allowed, 0.0) for x in (plain, logits))
    if bool((wanted - got).abs().max() <= bound(wanted, wanted, noise)):
        return ""
    return f"logits {((wanted * got).sum() / wanted.square().sum()).item():.4g} {SIZE}"


def named_layer(module: str) -> str:
    """Stack and number of a layer in words."""
    return " ".join(["layer", *(str(part) for part in layer_name(module) if part != "")])
