"""Carry out one experiment, from its configuration to a finished run folder."""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from spectrope.core import (
    SESSION,
    Interrupted,
    PeakMemory,
    Precision,
    Progress,
    Stop,
    UnsupportedError,
    Watch,
    attempted,
    commit,
    digest_of,
    file_digest,
    machine,
    never,
    peak_memory,
    place_of,
    unwatched,
)
from spectrope.encodings import ENCODINGS, Sizes, laws_of
from spectrope.lab.experiments import AnyExperiment, Training, laboratory_of, read_experiment, written
from spectrope.lab.manifest import ENCODING_FILES, OWN
from spectrope.lab.measures import MEASURES
from spectrope.lab.runs import run_for
from spectrope.lab.training.probe import Probe
from spectrope.lab.training.state import CHECKPOINTS
from spectrope.store import Run


@dataclass(frozen=True)
class Job:
    """An experiment, and the measures to take after training.

    Args:
        experiment: The experiment.
        tables: Names in `MEASURES`, or measures in files (`file.py:Class`), which are executed.
        precision: Precision of matrix products, unless the experiment sets it.

    Raises:
        UnknownNameError: If a measure is unknown.
        UnsupportedError: If measures are requested for a laboratory that only measures during training.
    """

    experiment: AnyExperiment
    tables: tuple[str, ...] = ("ablation",)
    precision: Precision = "auto"

    def __post_init__(self) -> None:
        object.__setattr__(self, "tables", tuple(map(MEASURES.resolve, self.tables)))
        if self.tables and not laboratory_of(self.experiment).measured:
            raise UnsupportedError(
                f"{self.tables[0]!r} is measured on sequences; a run of laboratory "
                f"{self.experiment.laboratory!r} measures itself while it trains."
            )

    def to_dict(self) -> dict[str, Any]:
        """This job as JSON-ready values, for another process."""
        fields = {"tables": list(self.tables), "precision": self.precision}
        return {"experiment": written(self.experiment), **fields}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> "Job":
        """Read a job back."""
        return cls(read_experiment(fields["experiment"]), tuple(fields["tables"]), fields["precision"])

    def is_done(self, run: Run) -> bool:
        """Whether a run contains all results of this job."""
        return run.finished and all(MEASURES[name]().is_taken(run) for name in self.tables)


def train(
    experiment: AnyExperiment,
    root: Path,
    device: torch.device,
    watch: Watch = unwatched,
    stop: Stop = never,
    probe: Probe | None = None,
    precision: Precision = "auto",
) -> Run:
    """Train an experiment of any laboratory, resume its training, or return its finished run.

    Args:
        experiment: The experiment.
        root: Folder of the runs.
        device: Device to compute on.
        watch: Progress callback, called with the number of steps done.
        stop: Called after every step; training stops when it returns true.
        probe: Probe that measures during training. It is not part of the experiment, and does not change
            its run.
        precision: Precision of matrix products, unless the experiment sets it.

    Raises:
        ConfigError: If the experiment leaves no examples for training or testing, or its own encoding fails.
        Interrupted: If a stop is requested, once the checkpoint is written, or while another process
            trains it.
        UnsupportedError: If the run was trained without the probe or with other settings of it, or the probe
            cannot measure the model.
    """
    laboratory = laboratory_of(experiment)
    laboratory.check(experiment, probe)
    run = run_for(experiment, root)
    _require_probed(run, probe)
    if not run.finished:
        origins = encoding_files(experiment)  # Before training, since trying a law may fail.
        with run.lock(stop):
            _require_probed(run, probe)
            if not run.finished:  # Another process may have finished it meanwhile.
                with peak_memory(device) as memory:
                    training = laboratory.trainer(experiment, run, device, precision, probe)
                    training.fit(watch, stop)
                facts = _circumstances(training, device) | training.manifest() | memory_used(memory)
                run.finish(facts | origins)
    discard_checkpoints(run)
    return run


def discard_checkpoints(run: Run) -> None:
    """Remove the checkpoints of a finished run; a process killed as it finishes a run leaves them.

    Raises:
        StoreError: If they cannot be removed.
    """
    for name in CHECKPOINTS:
        run.remove(name)


def _require_probed(run: Run, probe: Probe | None) -> None:
    """Refuse a probe of a run that is finished without it, or with other settings of it.

    Raises:
        UnsupportedError: If it is.
    """
    if not run.finished or probe is None:
        return
    if not run.has_frame(probe.table):
        raise UnsupportedError(
            f"run {run.id} is finished and was trained without this probe, which measures during training; "
            f"move its folder away, or take another folder of runs."
        )
    probe.require_same(run)


def complete(job: Job, root: Path, device: torch.device, watch: Watch = unwatched, stop: Stop = never) -> Run:
    """Train and measure, skipping everything that the run folder already contains.

    Raises:
        Interrupted: If a stop is requested: before the job starts, once the progress of its training is
            saved, or during a measure, which then begins anew the next time.
    """
    if stop():
        raise Interrupted("stopped between two runs.")
    run = train(job.experiment, root, device, watch, stop, precision=job.precision)
    if not job.is_done(run):
        with run.lock(stop):
            for measure in (MEASURES[name]() for name in job.tables):
                if measure.is_taken(run):
                    continue
                if stop():
                    raise Interrupted("stopped before a measure; those before it are saved.")
                measure.take(run, device, _stoppable(watch, stop))
    watch(Progress("done", 1, 1, run.manifest["test_accuracy"]))
    return run


def _stoppable(watch: Watch, stop: Stop) -> Watch:
    """A progress callback that raises `Interrupted` once a stop is requested, but not at the end."""

    def report(progress: Progress) -> None:
        watch(progress)
        if progress.done < progress.total and stop():
            raise Interrupted("stopped during a measure; those before it are saved.")

    return report


def _circumstances(training: Training, device: torch.device) -> dict[str, Any]:
    """When and where a run was trained, by which version."""
    return {
        "finished_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(training.seconds, 3),
        "cpu_seconds": round(training.cpu_seconds, 3),
        "commit": commit(),
        "device": str(device),
        "machine": machine(),
    }


def encoding_files(experiment: Any) -> dict[str, Any]:
    """Field of the manifest on user-defined encodings: source, digest and laws of each.

    `sha256` is the digest of the whole file, or of the code of a class from a session. Errors are relative
    deviations, in the encoding's own precision and with float32 widened to float64. Laws are tested with the
    model's sizes.
    """
    names = written(experiment).get(OWN, {})
    if not names:
        return {}
    model = experiment.model
    sizes = Sizes(d_model=model.d_model, n_heads=model.n_heads, head_dim=model.head_dim, causal=model.causal)
    return {ENCODING_FILES: {name: _source_and_laws(name, sizes) for name in names}}


def _source_and_laws(name: str, sizes: Sizes) -> dict[str, Any]:
    member = ENCODINGS[name]
    file, digest = _source(member)
    laws = [
        {
            "law": check.law.name.lower().replace("_", "-"),
            "declared": check.declared,
            "holds": check.holds,
            "error": check.error,
            "error_in_float64": check.widened_error,
            "note": check.note,
        }
        for check in attempted(place_of(member), lambda: laws_of(name, sizes))
    ]
    return {
        "class": member.__name__,
        "file": file,
        "sha256": digest,
        "laws": laws,
    }


def _source(member: type) -> tuple[str, str | None]:
    """The file of a class and its digest, or that of the code of a class from a session."""
    if member.__module__ in SESSION:
        return "a session", digest_of(member)
    return inspect.getfile(member), file_digest(member)


def memory_used(memory: PeakMemory) -> dict[str, float]:
    """Fields of the manifest on memory; see `PeakMemory`.

    `peak_memory_mib` is the peak memory of the process, in MiB, while the data were generated and the model
    was trained and evaluated; `memory_before_mib` is its memory before that. For a resumed run, both describe
    the part after the last resumption. Runs of earlier versions lack the second field, and their first is the
    peak of the whole process up to then.
    """
    return {
        "peak_memory_mib": round(memory.peak_mib, 1),
        "memory_before_mib": round(memory.before_mib, 1),
    }
