"""Methods to ablate a finished run, each of which writes tables to the run's folder."""

import math
from dataclasses import dataclass, replace

import polars as pl
import torch

from spectrope.core import Watch, unwatched
from spectrope.lab.ablation.adaptive import adaptive_sweep
from spectrope.lab.ablation.cumulative import cumulative_curve
from spectrope.lab.ablation.deposit import deposit_table
from spectrope.lab.ablation.fills.base import fill_of, resolved_fill
from spectrope.lab.ablation.protocols import CONTROLLED, PROTOCOLS, Protocol
from spectrope.lab.ablation.screening import screen
from spectrope.lab.ablation.sweep import Sweep, sweep
from spectrope.lab.runs import dtype_for, experiment_of, load_model
from spectrope.lab.sizes import mark_of, size_mark
from spectrope.lab.stamps import with_digests
from spectrope.models import Decoder
from spectrope.stats import Aim, TargetPrecision, ends
from spectrope.store import PackedRun, Run, temporary_folder, unpacked
from spectrope.tasks import Batch

EXAMPLES = 2000
THRESHOLD = 5.0  # Drop, in points, above which a head is said to cost.
TablesByName = dict[str, pl.DataFrame]


@dataclass(frozen=True)
class TrainedSubject:
    """A trained model with its data.

    Args:
        model: The network.
        train: Examples that it was trained on.
        held_out: Held-out examples.
        dtype: Precision of matrix products.
        seed: Seed of the order and the pairing of examples.
        watch: Progress callback, called with the number of heads done.
    """

    model: Decoder
    train: Batch
    held_out: Batch
    dtype: torch.dtype
    seed: int
    watch: Watch = unwatched

    @classmethod
    def of(cls, run: Run, device: torch.device, watch: Watch = unwatched) -> "TrainedSubject":
        """The model and data of a finished run."""
        experiment = experiment_of(run)
        task = experiment.task.build()
        train, held_out = task.split(experiment.n_train, experiment.n_test, experiment.seed)
        dtype, model = dtype_for(run, device), load_model(run, device)
        return cls(model, train, held_out, dtype, experiment.seed, watch)

    def sweep(self, data: Batch, protocol: Protocol) -> Sweep:
        """The exact sweep over `data`."""
        return sweep(self.model, data, protocol=protocol, dtype=self.dtype, seed=self.seed, watch=self.watch)


@dataclass(frozen=True, kw_only=True)
class Exact:
    """Ablate every head on every example, and test layers for a deposit: tables "ablation" and "deposit"."""

    protocol: Protocol = CONTROLLED
    examples: int = EXAMPLES

    def measure(self, subject: TrainedSubject) -> TablesByName:
        chosen = self.protocol.examples(subject.train, subject.held_out, self.examples)
        swept = subject.sweep(chosen, self.protocol)
        deposit = deposit_table(swept.intact, swept.ablated, seed=subject.seed)
        return _named(self.protocol, self.examples, ablation=pl.DataFrame(swept.drops()), deposit=deposit)


@dataclass(frozen=True, kw_only=True)
class Adaptive:
    """Ablate each head on as few examples as a decision requires: table "adaptive", or one named by its aim.

    The table is "adaptive" if the aim is to decide whether a drop exceeds 5 points, "adaptive-above-2" if it
    is 2 points, and "adaptive-within-1" if intervals are at most ±1 point wide.
    """

    aim: Aim
    protocol: Protocol = CONTROLLED

    def measure(self, subject: TrainedSubject) -> TablesByName:
        swept = adaptive_sweep(
            subject.model,
            self.protocol.examples(subject.train, subject.held_out),
            self.aim,
            protocol=self.protocol,
            dtype=subject.dtype,
            seed=subject.seed,
            watch=subject.watch,
        )
        rows = [
            {"layer": head.layer, "head": head.head, **ends("drop", head.drop), "n": head.n}
            for head in swept.drops
        ]
        table = pl.DataFrame(rows).with_columns(saving=pl.lit(swept.saving))
        return _named(self.protocol, EXAMPLES, **{"adaptive" + _aim_mark(self.aim): table})


@dataclass(frozen=True, kw_only=True)
class Cumulative:
    """Remove heads cumulatively, ordered on one half of the examples and measured on the other."""

    protocol: Protocol = CONTROLLED
    examples: int = EXAMPLES

    def measure(self, subject: TrainedSubject) -> TablesByName:
        chosen = self.protocol.examples(subject.train, subject.held_out, self.examples)
        half = (len(chosen) + 1) // 2
        order = subject.sweep(chosen[:half], self.protocol)
        steps = cumulative_curve(
            subject.model,
            chosen[half:],
            order,
            dtype=subject.dtype,
            seed=subject.seed,
            watch=subject.watch,
        )
        rows = [{**vars(step), **ends("drop", step.drop)} for step in steps]
        return _named(self.protocol, self.examples, cumulative=pl.DataFrame(rows))


@dataclass(frozen=True, kw_only=True)
class Screen:
    """Compute first-order estimates of the drops, and compare them with exact drops: table "screen"."""

    fill: str = "zero"
    examples: int = EXAMPLES

    def measure(self, subject: TrainedSubject) -> TablesByName:
        data = subject.held_out[: self.examples]
        protocol = replace(CONTROLLED, fill=self.fill)
        estimates = screen(subject.model, data, fill=protocol.fill, dtype=subject.dtype, seed=subject.seed)
        drops = pl.DataFrame(subject.sweep(data, protocol).drops()).select("layer", "head", "drop")
        estimated = estimates.loss_increase_estimate.ravel()
        table = drops.with_columns(loss_increase_estimate=pl.Series(estimated))
        return _named(protocol, self.examples, screen=table)


Method = Exact | Adaptive | Cumulative | Screen


def ablate(
    run: Run, device: torch.device, method: Method | None = None, watch: Watch = unwatched
) -> TablesByName:
    """Ablate a finished run, and store the tables with it.

    The names of tables on a number of examples other than the default, `EXAMPLES`, contain that number, and
    those of an adaptive ablation contain its aim unless it is the default; the default tables, on which
    claims are tested, are not overwritten. New drops delete correlations with earlier ones.

    Args:
        run: A finished run.
        device: Device to compute on.
        method: Ablation method (default: `Exact`).
        watch: Progress callback, called with the number of heads done.

    Raises:
        StoreError: If the run's folder cannot be written, or its weights cannot be read.
    """
    with run.lock():
        tables = (method or Exact()).measure(TrainedSubject.of(run, device, watch))
        keep_drops(run, tables)
    return tables


def ablate_apart(
    folder: PackedRun, method: Method | None, device: torch.device, watch: Watch = unwatched
) -> TablesByName:
    """Ablate a run that was sent from another machine; return the tables without storing them."""
    with temporary_folder() as root:
        subject = TrainedSubject.of(unpacked(folder, root), device, watch)
        return (method or Exact()).measure(subject)


def keep_drops(run: Run, tables: TablesByName) -> None:
    """Write tables of an ablation, and delete correlations with the drops that they replace."""
    with run.lock():
        if any(mark_of("ablation", name) is not None for name in tables):
            for name in run.frames:
                if mark_of("correlation", name) is not None:
                    run.remove(name)
        for name, table in reversed(tables.items()):  # The first tells that all are there.
            run.write_frame(name, table)


def choose_protocol(name: str, fill: str | None) -> Protocol:
    """A named protocol, with another fill, registered or in a file (`file.py:Class`), if one is given.

    Raises:
        UnknownNameError: If no protocol or fill has that name.
        ConfigError: If the file cannot be run.
    """
    protocol = PROTOCOLS[name]
    return protocol if fill is None else replace(protocol, fill=resolved_fill(fill))


def _aim_mark(aim: Aim) -> str:
    """Suffix of the name of a table with another aim than the default, in percentage points."""
    if isinstance(aim, TargetPrecision):
        return f"-within-{100 * aim.half_width:.10g}"
    return "" if math.isclose(100 * aim.level, THRESHOLD) else f"-above-{100 * aim.level:.10g}"


def _named(protocol: Protocol, examples: int, **tables: pl.DataFrame) -> TablesByName:
    """Tables under names that include protocol and size; those of the default protocol and size are plain."""
    marks = [protocol.fill] if protocol.fill != CONTROLLED.fill else []
    marks += [] if protocol.restored else ["unrestored"]
    marks += [] if protocol.data == CONTROLLED.data else [protocol.data]
    size = "" if examples == EXAMPLES else size_mark(examples)
    member = type(fill_of(protocol.fill))
    return {"-".join([name, *marks]) + size: with_digests(table, member) for name, table in tables.items()}
