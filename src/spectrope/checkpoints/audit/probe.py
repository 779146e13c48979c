"""Both probes of a model, at any length."""

from collections.abc import Container
from dataclasses import dataclass
from functools import partial

from torch import nn

from spectrope.checkpoints.adapters import POOLS, sees_future
from spectrope.checkpoints.audit.absolutes import VARIES
from spectrope.checkpoints.audit.fields import Declaration
from spectrope.checkpoints.audit.layers import Subject, layer_record, require_finite
from spectrope.checkpoints.audit.norms import declared_norms
from spectrope.checkpoints.audit.predictions import Remedy
from spectrope.checkpoints.audit.records import LayerRecord
from spectrope.checkpoints.probes.constant_content import LayerKernel, constant_content
from spectrope.checkpoints.probes.constant_token import Absolute, constant_token
from spectrope.core import Progress, Watch, unwatched


@dataclass(frozen=True, eq=False)
class Probed:
    """What both probes show of a model.

    Args:
        absolutes: The absolute term of each stack of layers.
        records: A record per layer.
        remedies: By module, what would put each finding of the layer right.
        untried: Modules whose attention function was not seen at work.
        unread: Modules that attend in a form that is not read.
    """

    absolutes: list[Absolute]
    records: list[LayerRecord]
    remedies: dict[str, list[Remedy]]
    untried: list[str]
    unread: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class BothProbes:
    """Both probes of one model, at any length.

    Args:
        model: The whole model.
        inner: The model without its head.
        declaration: Its configuration.
        noise: Relative rounding error of the model's arithmetic.
        batch: Number of random vectors.
        seed: Seed of the random vectors.
    """

    model: nn.Module
    inner: nn.Module
    declaration: Declaration
    noise: float
    batch: int
    seed: int

    def measured(
        self,
        modules: list[str],
        length: int,
        watch: Watch = unwatched,
        *,
        exercised: bool = True,
        compared: Container[str] | None = None,
    ) -> Probed:
        """Measure some attention modules at a length.

        Args:
            modules: Dotted names of the modules.
            length: Number of positions.
            watch: Progress callback, called after every layer.
            exercised: Whether to run attention functions on random inputs, up to the length that allows it.
            compared: Modules that get a record; None stands for all. The others only run.
        """
        inner, absolutes = self.inner, self.absolutes(modules, length)
        varying = {a.block.rpartition(".")[0]: a.variation > VARIES for a in absolutes}
        ahead, norms = partial(sees_future, self.model), declared_norms(inner)
        subject = Subject(inner, self.declaration, ahead, varying, length, self.noise, norms)
        records: list[LayerRecord] = []
        remedies: dict[str, list[Remedy]] = {}
        untried: list[str] = []

        def receive(kernel: LayerKernel) -> None:
            if compared is not None and kernel.call.module not in compared:
                return
            require_finite(self.model, kernel)
            record, remedies[kernel.call.module] = layer_record(kernel, subject)
            records.append(record)
            if kernel.exercise is None and kernel.call.pattern is None:
                untried.append(kernel.call.module)
            watch(Progress("audit", len(records), len(modules)))

        watch(Progress("audit", 0, len(modules)))
        tried = (modules if compared is None else compared) if exercised else ()
        unread = constant_content(
            inner, modules, length, receive, contents=self.batch, seed=self.seed, exercised=tried
        )
        return Probed(absolutes, records, remedies, untried, unread)

    def absolutes(self, modules: list[str], length: int) -> list[Absolute]:
        """The absolute term of each stack of layers that takes embeddings, at a length."""
        found = constant_token(self.inner, modules, length)
        return [one for one in found if not self._behind_encoder(one.block)]

    def _behind_encoder(self, block: str) -> bool:
        """Whether a stack takes what another one puts out, and no embeddings."""
        return self.declaration.model_type in POOLS and block.startswith("decoder")
