"""Training one run, or a plan of many, with progress."""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, overload

from spectrope import lab
from spectrope.console import try_own, try_task
from spectrope.core import (
    ConfigError,
    Device,
    SpectropeWarning,
    Watch,
    choose_device,
    require_type,
    stop_on_signal,
)
from spectrope.front.arguments import as_folder, as_settings, require_callback, require_whole
from spectrope.front.progress import watching
from spectrope.lab import AnyEncoding, AnyExperiment, AnyTask, Experiment, Job, Probe, as_jobs, experiment
from spectrope.store import Run


@overload
def train(
    encoding: AnyExperiment,
    /,
    *,
    root: str | Path = ...,
    device: Device = ...,
    probe: Probe | None = ...,
    watch: Watch | None = ...,
) -> Run: ...
@overload
def train(
    encoding: AnyEncoding,
    task: AnyTask = ...,
    *,
    scale: str = ...,
    condition: str = ...,
    seed: int = ...,
    epochs: int | None = ...,
    n_examples: int | None = ...,
    settings: Mapping[str, Any] | None = ...,
    root: str | Path = ...,
    device: Device = ...,
    probe: Probe | None = ...,
    watch: Watch | None = ...,
) -> Run: ...
def train(
    encoding: AnyEncoding | AnyExperiment,
    task: AnyTask = "distance",
    *,
    scale: str = "mini",
    condition: str = "controlled",
    seed: int = 0,
    epochs: int | None = None,
    n_examples: int | None = None,
    settings: Mapping[str, Any] | None = None,
    root: str | Path = "runs",
    device: Device = "auto",
    probe: Probe | None = None,
    watch: Watch | None = None,
) -> Run:
    """Train one decoder, resume its unfinished run, or return the finished run.

    An encoding or a task from a file is tested first, and the laws of the encoding are printed.

    Args:
        encoding: A registered encoding, one in a file (`file.py:Class`), its class or configuration, or an
            experiment, which replaces all arguments up to `settings`.
        task: A registered task, one in a file, its class or configuration.
        scale: Size of models and data, and length of training; see `experiment`.
        condition: Which confounds to remove or keep: a name in `CONDITIONS`.
        seed: Seed of data, initial weights, batch order and dropout.
        epochs: Number of epochs (default: the scale's).
        n_examples: Number of examples (default: the scale's).
        settings: Other fields of the experiment by name, as `Experiment.with_` takes them.
        root: Folder of the run folders.
        device: Device to compute on.
        probe: Measurement during training, such as `LearningProbe(every=100)`; it does not change the
            weights.
        watch: Progress callback; None shows progress in the terminal or notebook.

    Raises:
        ConfigError: If a value breaks a rule, or an experiment is given together with settings.
        UnknownNameError: If a name is not known.
        Interrupted: After Ctrl-C, once the run is saved.

    Example:
        >>> import spectrope as sp
        >>> run = sp.train("rope", "distance", epochs=1, n_examples=60, watch=sp.unwatched)
        >>> run.finished, run.config["encoding_name"]
        (True, 'rope')
    """
    given = (task, scale, condition, seed, epochs, n_examples, settings)
    if isinstance(encoding, AnyExperiment):
        if given != ("distance", "mini", "controlled", 0, None, None, None):
            raise ConfigError("an experiment already has its task, scale and sizes; change them there.")
        one = encoding
    else:
        one = experiment(
            task,
            encoding,
            scale=scale,
            condition=condition,
            seed=seed,
            epochs=epochs,
            n_examples=n_examples,
        ).with_(**as_settings(settings))
    folder = as_folder(root)
    require_callback(watch)
    if probe is not None:
        require_type(probe, Probe, "probe", "a probe, such as LearningProbe(every=100)")
    if decoder := Experiment.of(one):
        tried([decoder])
    place = choose_device(device)
    with watching(watch, [one.label]) as shown, stop_on_signal() as stop:
        run = lab.train(one, folder, place, shown, stop, probe)
    warn_of_failures([run])
    return run


def warn_of_failures(runs: Iterable[Run]) -> None:
    """Warn about runs that diverged or whose accuracy is close to chance."""
    for run in runs:
        if failure := _failure(run.manifest):
            label = lab.read_experiment(run.config).label
            warnings.warn(f"{label} {failure}", SpectropeWarning, stacklevel=3)


def _failure(manifest: Mapping[str, Any]) -> str:
    """What is wrong with a finished run, if anything, and what may help."""
    if lab.has_diverged(manifest):
        return "diverged: its held-out loss is not finite; a lower learning rate may help."
    if not lab.is_near_chance(manifest):
        return ""
    if lab.is_bound_to_guess(manifest):
        return "guesses, as every model must: the task's best possible accuracy is that of guessing."
    reached, chance = (100 * manifest[name] for name in ("test_accuracy", "chance_accuracy"))
    return (
        f"is near chance: {reached:.1f} % held-out accuracy, {chance:.1f} % by guessing. Its heads are not "
        "yet meaningful; train on more examples or for more epochs."
    )


def execute(
    plan: Sequence[AnyExperiment | Job],
    root: str | Path = "runs",
    *,
    device: Device = "auto",
    workers: int = 1,
    watch: Watch | None = None,
) -> list[Run]:
    """Train and measure every job of a plan; results that already exist in its run folder are not recomputed.

    Args:
        plan: The jobs; a plain experiment is trained and ablated.
        root: Folder of the run folders.
        device: Device to compute on; on CUDA, a single worker is used.
        workers: Processes on a CPU, which share its threads.
        watch: Called with the progress of each job; None shows it in a terminal or a notebook.

    Returns:
        Their runs, in the order of the plan.

    Raises:
        EngineError: If a worker process dies.
        Interrupted: After Ctrl-C, once every unfinished run is saved.
        SpectropeError: If a job fails; the others are finished first.

    Example:
        >>> import spectrope as sp
        >>> plan = [sp.experiment("distance", "rope", seed=seed, epochs=1, n_examples=60) for seed in (0, 1)]
        >>> [run.config["seed"] for run in sp.execute(plan, watch=sp.unwatched)]
        [0, 1]
    """
    labels = [job.experiment.label for job in as_jobs(plan)]
    folder = as_folder(root)
    require_callback(watch)
    require_whole(1, workers=workers)
    if not labels:
        return []
    with watching(watch, labels) as shown:
        return lab.execute(plan, folder, device=device, workers=workers, watch=shown)


def tried(plan: Sequence[Experiment]) -> None:
    """Test encodings and tasks from files, each once, before any job of a plan is trained.

    Raises:
        ConfigError: If one fails, with the line of the file.
    """
    for one in {one.model.encoding.kind: one for one in reversed(plan)}.values():
        try_own(one.model)
    for task in dict.fromkeys(one.task for one in plan):
        try_task(task)
