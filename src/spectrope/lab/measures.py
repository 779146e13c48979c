"""What can be measured on a finished run, under the name of the table that it leaves."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from spectrope.core.errors import UnknownNameError
from spectrope.core.progress import Watch, unwatched
from spectrope.lab.ablation.methods import EXAMPLES, Exact, ablate
from spectrope.lab.ablation.protocols import PROTOCOLS
from spectrope.lab.evaluation.lengths import lengths
from spectrope.lab.spectra.heads import spectrum
from spectrope.lab.training.config import Experiment
from spectrope.lab.training.early import STEPS, head_gradients, head_growth, kernels_at_start
from spectrope.store import Run


@dataclass(frozen=True)
class Measure:
    """One thing to measure.

    Args:
        apply: Measures a run on a device and keeps the table with it, showing progress.
        examples: How many examples it takes of an experiment's data, in proportion to which its cost grows.
    """

    apply: Callable[[Run, torch.device, Watch], object]
    examples: Callable[[Experiment], int]

    def take(self, run: Run, device: torch.device, watch: Watch = unwatched) -> None:
        """Measure a finished run."""
        self.apply(run, device, watch)


def _held_out(experiment: Experiment) -> int:
    return min(EXAMPLES, experiment.n_test)


def _any(experiment: Experiment) -> int:
    return min(EXAMPLES, experiment.n_train + experiment.n_test)


def _fixed(experiment: Experiment) -> int:
    return 1


def _first_steps(experiment: Experiment) -> int:
    training = experiment.training
    return (
        min(STEPS + 1, training.epochs * -(-experiment.n_train // training.batch_size)) * training.batch_size
    )


def _ablation(protocol: str) -> Measure:
    method = Exact(protocol=PROTOCOLS[protocol])
    examples = _held_out if method.protocol.data == "held-out" else _any
    return Measure(lambda run, device, watch: ablate(run, device, method, watch), examples)


MEASURES: Mapping[str, Measure] = {
    "ablation": _ablation("controlled"),
    "ablation-value-bias-unrestored": _ablation("R9"),
    "ablation-all": _ablation("R10"),
    "ablation-latent-columns": _ablation("R12"),
    "ablation-value-bias-unrestored-all": _ablation("released"),
    "ablation-latent-columns-unrestored-all": _ablation("released-mla"),
    "lengths": Measure(lambda run, device, watch: lengths(run, device, watch=watch), _fixed),
    "start": Measure(kernels_at_start, _fixed),
    "head_gradients": Measure(head_gradients, _first_steps),
    "head_growth": Measure(head_growth, _fixed),
    "spectrum": Measure(lambda run, device, watch: spectrum(run, device, watch=watch), _fixed),
}


def require_measures(names: tuple[str, ...]) -> None:
    """Refuse names of tables that nothing here leaves.

    Raises:
        UnknownNameError: For the first of them.
    """
    for name in names:
        if name not in MEASURES:
            raise UnknownNameError("measure", name, MEASURES)
