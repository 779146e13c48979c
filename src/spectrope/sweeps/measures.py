"""What can be measured on a finished run, under the name of the table that it leaves."""

from collections.abc import Callable, Mapping

import torch

from spectrope.ablation.protocols import PROTOCOLS
from spectrope.core.errors import UnknownNameError
from spectrope.store import Run
from spectrope.sweeps.ablate import Exact, ablate
from spectrope.sweeps.events import Listener
from spectrope.sweeps.lengths import lengths
from spectrope.sweeps.spectrum import spectrum

Measure = Callable[[Run, torch.device, Listener], object]


def _ablation(protocol: str) -> Measure:
    method = Exact(protocol=PROTOCOLS[protocol])
    return lambda run, device, listen: ablate(run, device, method, listen)


def _plain(measure: Callable[..., object]) -> Measure:
    return lambda run, device, listen: measure(run, device, listen=listen)


MEASURES: Mapping[str, Measure] = {
    "ablation": _ablation("controlled"),
    "ablation-value-bias-unrestored": _ablation("R9"),
    "ablation-all": _ablation("R10"),
    "lengths": _plain(lengths),
    "spectrum": _plain(spectrum),
}


def require_measures(names: tuple[str, ...]) -> None:
    """Refuse names of tables that nothing here leaves.

    Raises:
        UnknownNameError: For the first of them.
    """
    for name in names:
        if name not in MEASURES:
            raise UnknownNameError("measure", name, MEASURES)
