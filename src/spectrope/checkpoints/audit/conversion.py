"""What becomes of a model's kernels when it is converted: by `.to(bfloat16)`, and by `to_empty`."""

import contextlib
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from spectrope.checkpoints.audit.bias import row_centred
from spectrope.checkpoints.audit.serving import Refused, ServedModel, bound
from spectrope.checkpoints.probes.served import kernel_rows

NAMED = 3  # Buffers that a note names.


def conversion_notes(served: ServedModel) -> tuple[str, ...]:
    """Conversions that would change the kernels of a model whose layers are right, in words.

    The model's buffers are changed as a conversion changes them, its kernels measured, and the buffers put
    back.

    Args:
        served: The model.
    """
    return tuple(note for note in (_rounded(served), _emptied(served)) if note)


def _rounded(served: ServedModel) -> str:
    """What `model.to(torch.bfloat16)` changes beyond the arithmetic, "" if nothing.

    Buffers that a checkpoint holds are rounded in `from_pretrained`, too.
    """
    computed = _computed(served.model)
    buffers = [
        name for name, x in _buffers(served.model) if name in computed and not torch.equal(_in_bfloat16(x), x)
    ]
    moved = _moved(served, buffers, _in_bfloat16)
    if not moved:
        return ""
    return (
        f"model.to(torch.bfloat16) would round {_listed(buffers)} and change the kernels of {moved} within "
        f"{served.tokens} tokens; from_pretrained(..., dtype=torch.bfloat16) loads without it"
    )


def _emptied(served: ServedModel) -> str:
    """What `to_empty` loses that no checkpoint brings back, "" if nothing."""
    lost = _computed(served.model)
    buffers = [name for name, _ in _buffers(served.model) if name in lost]
    moved = _moved(served, buffers, torch.zeros_like)
    if not moved:
        return ""
    return (
        f"after to_empty(), load_state_dict does not bring back {_listed(buffers)}, which changes the "
        f"kernels of {moved}; from_pretrained computes it again"
    )


def _computed(model: nn.Module) -> set[str]:
    """Dotted names of buffers that no checkpoint holds."""
    return {
        f"{name}.{buffer}".lstrip(".")
        for name, module in model.named_modules()
        for buffer in module._non_persistent_buffers_set
    }


def _buffers(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Buffers of floating-point numbers in at least single precision."""
    wide = (torch.float32, torch.float64)
    return ((name, x) for name, x in model.named_buffers() if x.dtype in wide and x.numel())


def _in_bfloat16(x: Tensor) -> Tensor:
    return x.bfloat16().to(x.dtype)


def _moved(served: ServedModel, buffers: list[str], change: Callable[[Tensor], Tensor]) -> str:
    """How many layers' kernels differ once buffers are changed, and by how much; "" if none does."""
    if not buffers:
        return ""
    try:
        with _changed(served.model, buffers, change):
            after = served.served(lambda: served.forward(served.tokens))
    except Refused:
        return ""
    gaps = []
    for module, calls in after.calls.items():
        plain, allowed = served.reference[module][0].logits, served.reference[module][0].allowed
        wanted, got = (row_centred(x[0], allowed[0]) for x in (plain, kernel_rows(calls[0])[0]))
        gap = (wanted - got).abs().max()
        if bool(gap > bound(wanted, plain, served.noise)):
            gaps.append(gap.item())
    layers = "1 layer" if len(gaps) == 1 else f"{len(gaps)} layers"
    return f"{layers} by up to {max(gaps):.2g}" if gaps else ""


@contextlib.contextmanager
def _changed(model: nn.Module, names: list[str], change: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """The model with some buffers changed in place, as they were on exit."""
    kept = {name: model.get_buffer(name).clone() for name in names}
    try:
        for name in names:
            model.get_buffer(name).copy_(change(kept[name]))
        yield
    finally:
        for name, x in kept.items():
            model.get_buffer(name).copy_(x)


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more
