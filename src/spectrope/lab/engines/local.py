"""Run many experiments in worker processes of this machine, with progress and interruption."""

import contextlib
import multiprocessing
import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from spectrope.core import (
    Device,
    Interrupted,
    Progress,
    SpectropeError,
    Stop,
    StoreError,
    Watch,
    choose_device,
    keep_freed_memory,
    load_file,
    loaded_files,
    require_type,
    stop_on_signal,
    unwatched,
)
from spectrope.lab.engines.base import Engine, Harvested, LostError
from spectrope.lab.experiments import AnyExperiment
from spectrope.lab.job import Job, complete
from spectrope.lab.runs import find_run, run_for
from spectrope.store import PackedRun, Run, packed, unpacked

SECONDS_BETWEEN_LOOKS = 0.2
START_METHOD = "spawn"  # Of worker processes; a fork of a process that uses threads may hang.
DIED = (
    "a worker process died, for example because memory ran out; the same command resumes from the saved "
    "state, and fewer workers need less memory."
)


@dataclass(frozen=True)
class Local(Engine):
    """The engine that uses this machine alone.

    Args:
        device: Device to compute on; on CUDA, a single worker is used.
        workers: Processes on a CPU, which share its threads.
    """

    device: Device = "auto"
    workers: int = 1

    def __call__(
        self,
        jobs: Sequence[Job],
        root: Path,
        watch: Watch,
        harvest: Callable[[Run], Harvested],
        keep: Callable[[Harvested], None],
    ) -> None:
        """Do the jobs in this machine's processes; see `Engine`."""
        left = dict(enumerate(jobs))
        unreadable: list[StoreError] = []

        def told(progress: Progress) -> None:
            if progress.stage == "done":
                try:
                    harvested = harvest(run_for(left.pop(progress.job).experiment, root))
                except StoreError as error:  # Of this run alone: the others are done first.
                    unreadable.append(error)
                else:
                    keep(harvested)
            watch(progress)

        def keep_if_done(job: Job) -> None:
            run = find_run(job.experiment, root)
            if run is not None and job.is_done(run):
                keep(harvest(run))

        try:
            execute(jobs, root, device=self.device, workers=self.workers, watch=told)
        except BaseException:
            for job in left.values():  # A worker may end before its last message has come.
                with contextlib.suppress(SpectropeError):  # The first error is the one to raise.
                    keep_if_done(job)
            raise
        for job in left.values():
            keep_if_done(job)
        if unreadable:
            raise unreadable[0]


def execute(
    plan: Sequence[AnyExperiment | Job],
    root: str | Path,
    *,
    device: Device = "auto",
    workers: int = 1,
    watch: Watch = unwatched,
    engine: Engine | None = None,
) -> list[Run]:
    """Train and measure every job of a plan; results that already exist in its run folder are not recomputed.

    Args:
        plan: The jobs; a plain experiment is trained and ablated.
        root: Folder of the run folders.
        device: Device to compute on; on CUDA, a single worker is used.
        workers: Processes on a CPU, which share its threads.
        watch: Progress callback; it is called with the progress of each job.
        engine: Carries out the jobs in place of this machine, such as `Ray`; run folders of machines that
            do not share `root` are copied to it.

    Returns:
        Their runs, in the order of the plan.

    Raises:
        LostError: If a worker process dies.
        Interrupted: After Ctrl-C, once every unfinished run is saved.
        SpectropeError: If a job fails; the others are finished first, unless it is `watch` that fails.
    """
    root, jobs = Path(root), as_jobs(plan)
    if engine is not None:

        def keep(folder: PackedRun) -> None:
            unpacked(folder, root)

        engine(jobs, root, watch, packed, keep)
        return [run_for(job.experiment, root) for job in jobs]
    place = choose_device(device)
    workers = 1 if place.type == "cuda" else min(workers, len(jobs))
    with stop_on_signal() as stop:
        if workers <= 1:
            return _in_turn(jobs, root, place, watch, stop)
        return _in_processes(jobs, root, workers, watch, stop)


def threads_each(workers: int) -> int:
    """Threads of each of some processes, which share those of this one."""
    return max(1, torch.get_num_threads() // workers)


def as_jobs(plan: Sequence[AnyExperiment | Job]) -> list[Job]:
    """A plan with its experiments made jobs.

    Raises:
        ConfigError: If it is not a sequence of these.
    """
    require_type(plan, Sequence, "a plan", "a list of experiments or jobs")
    for one in plan:
        require_type(one, (AnyExperiment, Job), "every entry of a plan", "an experiment or a job")
    return [one if isinstance(one, Job) else Job(one) for one in plan]


def _in_turn(jobs: Sequence[Job], root: Path, device: torch.device, watch: Watch, stop: Stop) -> list[Run]:
    runs: list[Run] = []
    mistakes: list[SpectropeError] = []
    watched = _Watched(watch)
    for number, job in enumerate(jobs):
        try:
            runs.append(complete(job, root, device, numbered(number, watched), stop))
        except Interrupted:
            raise
        except SpectropeError as mistake:
            if watched.failed:
                raise
            mistakes.append(mistake)
    if mistakes:
        raise mistakes[0]
    return runs


class _Watched:
    """A progress callback whose own failure is distinguished from that of a job."""

    def __init__(self, watch: Watch) -> None:
        self.watch, self.failed = watch, False

    def __call__(self, progress: Progress) -> None:
        self.failed = True
        self.watch(progress)
        self.failed = False


def _in_processes(jobs: Sequence[Job], root: Path, workers: int, watch: Watch, stop: Stop) -> list[Run]:
    context = multiprocessing.get_context(START_METHOD)
    events, stopping = context.Queue(), context.Event()
    furnish = events, stopping, threads_each(workers), loaded_files()
    others = set(multiprocessing.active_children())
    with ProcessPoolExecutor(workers, context, _enter, furnish) as pool:

        def halt() -> None:
            stopping.set()
            pool.shutdown(wait=False, cancel_futures=True)

        try:
            futures = [pool.submit(_work, number, job.to_dict(), root) for number, job in enumerate(jobs)]
            pending = set(futures)
            while pending:
                _forward(events, watch)
                pending = {one for one in pending if not one.done()}  # `wait` overlooks what is cancelled.
                if stop() and not stopping.is_set():
                    halt()
            _refuse_broken(futures)
        except BrokenProcessPool as error:
            for worker in set(multiprocessing.active_children()) - others:
                worker.kill()  # They do not heed SIGTERM, which is all that the pool sends.
            raise LostError(DIED) from error
        except BaseException:
            halt()
            raise
    _forward(events, watch, patience=0.0)
    return _results(futures)


def _refuse_broken(futures: Sequence[Future[Run]]) -> None:
    for future in futures:
        if not future.cancelled() and isinstance(error := future.exception(), BrokenProcessPool):
            raise error


def _forward(events: Any, watch: Watch, patience: float = SECONDS_BETWEEN_LOOKS) -> None:
    try:
        watch(events.get(timeout=patience))
        while True:
            watch(events.get_nowait())
    except queue.Empty:
        return


def _results(futures: Sequence[Future[Run]]) -> list[Run]:
    ended = [future for future in futures if not future.cancelled()]
    errors = [error for future in ended if (error := future.exception())]
    for error in errors:
        if not isinstance(error, SpectropeError):
            raise error
    mistakes = [error for error in errors if not isinstance(error, Interrupted)]
    if mistakes:
        raise mistakes[0]
    if errors or len(ended) < len(futures):
        raise Interrupted("stopped; every run is saved.")
    return [future.result() for future in ended]


_worker: dict[str, Any] = {}


def _enter(events: Any, stopping: Any, threads: int, files: Sequence[Path]) -> None:
    """Prepare a worker: threads, memory, progress queue, the user's own files, exit if the parent dies."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    torch.set_num_threads(threads)
    keep_freed_memory()
    _worker.update(events=events, stopping=stopping)
    for file in files:
        load_file(file)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _work(number: int, fields: Mapping[str, Any], root: Path) -> Run:
    watch = numbered(number, throttled(_worker["events"].put))
    return complete(Job.from_dict(fields), root, torch.device("cpu"), watch, _worker["stopping"].is_set)


def numbered(job: int, watch: Watch) -> Watch:
    """A callback that adds the number of a job."""
    return lambda progress: watch(replace(progress, job=job))


def throttled(watch: Watch) -> Watch:
    """A callback that receives each new stage at once, and progress within it at intervals."""
    last, stage = -SECONDS_BETWEEN_LOOKS, ""

    def now_and_then(progress: Progress) -> None:
        nonlocal last, stage
        now = time.monotonic()
        if progress.stage != stage or now - last >= SECONDS_BETWEEN_LOOKS:
            last, stage = now, progress.stage
            watch(progress)

    return now_and_then
