"""Refuse a length at which an audit would need more memory than there is."""

from spectrope.checkpoints.adapters import FAILURES, layer_name
from spectrope.checkpoints.adapters.sparse import attention_for
from spectrope.checkpoints.audit.declaration import layer_type
from spectrope.checkpoints.audit.fields import Declaration
from spectrope.checkpoints.audit.probe import BothProbes
from spectrope.checkpoints.probes.exercise import LONGEST
from spectrope.core import ConfigError, SpectropeError, available_memory, peak_growth

GIB = 2**30
UNCHECKED = 512  # Positions up to which an audit starts without an estimate.
OVERHEAD = (
    1.2  # Resident memory over tensors: the allocator's fragments, and temporary buffers of operations.
)


def require_memory(probe: BothProbes, modules: list[str], length: int) -> None:
    """Refuse a length whose tensors do not fit into the memory that is available.

    The estimate measures one layer of each kind at a small length and extrapolates each allocation by its
    power of the length: masks, biases and logits grow with its square. A model that does not run at the small
    length is not checked.

    Args:
        probe: Both probes of the model.
        modules: Dotted names of all attention modules.
        length: Positions of the audit.

    Raises:
        ConfigError: If they do not fit.
    """
    if length <= UNCHECKED:
        return
    some = _one_of_each_kind(modules, probe.declaration)
    try:
        with attention_for(probe.model, length):
            growth = peak_growth(lambda n: probe.measured(some, n, exercised=length <= LONGEST))
    except (SpectropeError, *FAILURES):
        return
    needed = growth.at(length)
    usable = {device: int(available_memory(device) / OVERHEAD) for device in needed}
    for device, size in needed.items():
        if size > usable[device]:
            asked, given = (OVERHEAD * part / GIB for part in (size, usable[device]))
            raise ConfigError(
                f"an audit's length must fit into memory; {length} positions need about {asked:.1f} GiB "
                f"({device.type}), and {given:.1f} GiB are available. The largest length that fits is "
                f"{growth.longest(usable)}; the audit also probes positions beyond it, up to the declared "
                "length."
            )


def _one_of_each_kind(modules: list[str], declaration: Declaration) -> list[str]:
    """The first attention module of each kind of layer in each stack."""
    kinds: dict[tuple[str, str], str] = {}
    for module in modules:
        stack, layer = layer_name(module)
        kinds.setdefault((stack, layer_type(declaration.at(layer), layer)), module)
    return list(kinds.values())
