"""Run many experiments on many machines or GPUs with Ray."""

import contextlib
import math
import os
import socket
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from spectrope.core import (
    Interrupted,
    Progress,
    SpectropeError,
    SpectropeWarning,
    Stop,
    UnsupportedError,
    Watch,
    keep_freed_memory,
    load_file,
    loaded_files,
    require,
    stop_on_signal,
    unwatched,
)
from spectrope.lab.engines.base import Engine, EngineError, Harvested, LostError
from spectrope.lab.engines.board import Board
from spectrope.lab.engines.local import numbered, throttled
from spectrope.lab.job import Job, complete
from spectrope.store import Run

SECONDS_BETWEEN_LOOKS = 0.5
SECONDS_BETWEEN_CHECKS = 10.0  # Of whether any machine can still run a job.
SECONDS_TO_ANSWER = 10.0  # Of a cluster; Ray itself tries for a quarter of an hour.
SECONDS_OF_PATIENCE = 15.0  # After which the user is told that Ray is still starting.
LIMITS = ("RAY_gcs_server_request_timeout_seconds", "RAY_NUM_REDIS_GET_RETRIES")  # Ray's own, when it starts.
GO_ON = "finished runs are kept. To continue, run the same command on a working cluster."
RETRIES = 10  # How often a job is begun again after its worker has died.


@dataclass(frozen=True)
class Ray(Engine):
    """The engine that uses a Ray cluster.

    A job whose worker dies is restarted on any machine: from its last checkpoint if that machine sees the
    same run folders (a shared disk, or the same machine), else from the start. Results are returned through
    Ray, so this machine needs no access to the folders of others. In Ray's dashboard and in lists of
    processes, a job has the name of its experiment, as in "distance/rope/seed 0".

    Args:
        address: Of a running cluster, such as "auto" or "ray://host:10001"; None starts one on this machine.
        workers: Jobs at a time of a cluster that is started here.
        cpus: Processors that one job takes, and threads that it uses.
        gpus: GPUs that one job takes; 0.25 lets four jobs share one, 0 computes on the CPU.
        start_seconds: How long a cluster that is started here may take to start.
    """

    address: str | None = None
    workers: int = 1
    cpus: int = 1
    gpus: float = 0.0
    start_seconds: float = 300.0

    def __post_init__(self) -> None:
        require(self.workers >= 1, self, "workers", "at least 1")
        require(self.cpus >= 1, self, "cpus", "at least 1")
        require(self.gpus >= 0, self, "gpus", "at least 0")
        require(self.start_seconds > 0, self, "start_seconds", "above 0")

    def __call__(
        self,
        jobs: Sequence[Job],
        root: Path,
        watch: Watch,
        harvest: Callable[[Run], Harvested],
        keep: Callable[[Harvested], None],
    ) -> None:
        """Do the jobs on the cluster; see `Engine`."""
        with self._cluster() as ray, stop_on_signal() as stop:
            _oversee(ray, self._submit(ray, jobs, root, harvest), stop, watch, keep, self._require_alive)

    def compute(
        self, function: Callable[[torch.device, Watch], Harvested], watch: Watch = unwatched
    ) -> Harvested:
        """Call a function once, on one machine of the cluster.

        Args:
            function: Takes the device to compute on and a progress callback; it and its result are sent
                between machines.
            watch: Called in this process with the progress.

        Returns:
            What the function returns.

        Raises:
            EngineError: If the cluster cannot be reached, or workers keep dying.
            LostError: If the cluster is lost.
            Interrupted: After Ctrl-C; the call is cancelled.
            SpectropeError: If the function raises one.
        """
        with self._cluster() as ray, stop_on_signal() as stop:
            board = _board(ray)
            future = self._task(ray, do_call).remote(function, self._place, self.cpus, loaded_files(), board)
            done: list[Any] = []
            while not done:
                done, _ = ray.wait([future], timeout=SECONDS_BETWEEN_LOOKS)
                for progress in ray.get(board.take.remote()):
                    watch(progress)
                if stop():
                    ray.cancel(future, force=True)
                    raise Interrupted("stopped; nothing was kept.")
            outcome = _outcome(ray, future, "the call")
            if isinstance(outcome, SpectropeError):
                raise outcome
            return outcome

    @contextlib.contextmanager
    def _cluster(self) -> Iterator[Any]:
        """The library, connected to the cluster while the block runs.

        Raises:
            LostError: If the cluster is lost in the block.
        """
        for name in LIMITS if self.address is None else ():
            os.environ.setdefault(name, str(math.ceil(self.start_seconds)))
        ray = _ray()
        begun = not ray.is_initialized()
        if begun:
            self._connect(ray)
        try:
            self._require_room(ray)
            with _silent_about_machines(ray):
                yield ray
        except ray.exceptions.RayTaskError:
            raise  # A fault of the program, in a worker.
        except ray.exceptions.RayError as error:
            raise LostError(f"the Ray cluster was lost ({type(error).__name__}); {GO_ON}") from None
        finally:
            if begun:
                ray.shutdown()

    def _task(self, ray: Any, function: Callable[..., Any]) -> Any:
        return ray.remote(num_cpus=self.cpus, num_gpus=self.gpus, max_retries=RETRIES)(function)

    @property
    def _place(self) -> str:
        return "cuda" if self.gpus else "cpu"

    def _connect(self, ray: Any) -> None:
        try:
            _require_answer(self.address)
            with _told_to_wait(self.address, self.start_seconds):
                self._init(ray)
        except (OSError, OverflowError, RuntimeError, ValueError) as error:
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise EngineError(f"no Ray cluster at {self.address or 'this machine'}: {reason}") from None

    def _init(self, ray: Any) -> None:
        """Connect to the cluster, or start one: again if it is not ready when Ray gives up.

        Raises:
            EngineError: If it has not started within the limit.
        """
        local_options = {"num_cpus": self.workers * self.cpus, "include_dashboard": False}
        deadline = time.monotonic() + self.start_seconds
        while True:
            try:
                ray.init(
                    address=self.address,
                    log_to_driver=False,
                    logging_level="ERROR",
                    **(local_options if self.address is None else {}),
                )
                return
            except Exception as error:  # Ray raises no other type where time is up.
                if self.address is not None or "timed out" not in str(error):
                    raise
                ray.shutdown()
            if time.monotonic() >= deadline:
                raise EngineError(
                    f"Ray did not start on this machine within {self.start_seconds:g} s; try again when it "
                    "is less busy, or allow more with start_seconds."
                )

    def _require_room(self, ray: Any) -> None:
        """Refuse a job that no machine can run; Ray would wait for such a machine silently."""
        if not self._has_room(ray):
            shares = _shares(ray)
            there = ", ".join(f"{cpus} and {gpus}" for cpus, gpus in sorted(set(shares)))
            raise EngineError(
                f"a run takes {self.cpus} processors and {self.gpus:g} GPUs of one machine of the Ray "
                f"cluster, whose machines have {there}. Request less for each run, or add such a machine."
            )

    def _require_alive(self, ray: Any) -> None:
        """Refuse to wait for a cluster without its head, or without a machine that can run a job.

        Raises:
            LostError: If either is lost; the head before Ray, which waits for it, ends this process.
        """
        if not _head_answers(ray):
            raise LostError(f"the head of the Ray cluster was lost; {GO_ON}")
        if not self._has_room(ray):
            raise LostError(f"no machine of the Ray cluster is left that can run a job; {GO_ON}")

    def _has_room(self, ray: Any) -> bool:
        """Whether any machine of the cluster can run a job."""
        return any(cpus >= self.cpus and gpus >= self.gpus for cpus, gpus in _shares(ray))

    def _submit(
        self, ray: Any, jobs: Sequence[Job], root: Path, harvest: Callable[[Run], Any]
    ) -> "Submitted":
        board = _board(ray)
        task = self._task(ray, do_job)
        shared = str(root.resolve()), self._place, self.cpus, loaded_files(), board, harvest
        pending = {
            task.options(name=job.experiment.label).remote(number, job.to_dict(), *shared): (number, job)
            for number, job in enumerate(jobs)
        }
        return Submitted(board, pending)


@contextlib.contextmanager
def _silent_about_machines(ray: Any) -> Iterator[None]:
    """Keep Ray from printing the state of lost machines among results, which no option of it does."""
    worker: Any = getattr(getattr(ray, "_private", None), "worker", None)
    before = getattr(worker, "print_to_stdstream", None)
    if worker is None or before is None:  # Another version.
        yield
        return
    worker.print_to_stdstream = lambda *data, **options: None
    try:
        yield
    finally:
        worker.print_to_stdstream = before


def _board(ray: Any) -> Any:
    """A board that is made again elsewhere if its machine is lost; a stop is then asked for again."""
    return ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1)(Board).remote()


def _shares(ray: Any) -> list[tuple[int, int]]:
    """Processors and GPUs of each machine of the cluster that lives."""
    machines = [machine["Resources"] for machine in ray.nodes() if machine["Alive"]]
    return [(int(one.get("CPU", 0)), int(one.get("GPU", 0))) for one in machines]


def _head_answers(ray: Any) -> bool:
    """Whether something still listens at the address of the cluster's head."""
    host, _, port = str(ray.get_runtime_context().gcs_address).rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), SECONDS_TO_ANSWER).close()
    except OSError:
        return False
    return True


@contextlib.contextmanager
def _told_to_wait(address: str | None, limit: float) -> Iterator[None]:
    """Warn once if the block takes long."""
    where = f"has not answered at {address}" if address else f"has not started here (limit {limit:g} s)"
    message = f"Ray {where} after {SECONDS_OF_PATIENCE:g} s; waiting."
    timer = threading.Timer(SECONDS_OF_PATIENCE, warnings.warn, (message, SpectropeWarning))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@dataclass(frozen=True)
class Submitted:
    """Submitted jobs: the board they report to, and number and job of each future."""

    board: Any
    pending: dict[Any, tuple[int, Job]]


def do_job(
    number: int,
    fields: Mapping[str, Any],
    root: str,
    place: str,
    threads: int,
    files: Sequence[Path],
    board: Any,
    harvest: Callable[[Run], Any],
) -> tuple[Any, float | None] | SpectropeError:
    """Carry a job out in a worker of the cluster.

    Returns:
        The harvest of its run and the held-out accuracy, or an error that a user can fix.
    """
    _prepare(threads, files)
    watch = numbered(number, throttled(board.tell.remote))
    try:
        stop = asked_to_stop(partial(_ask, board))
        run = complete(Job.from_dict(fields), Path(root), torch.device(place), watch, stop)
        return harvest(run), run.manifest["test_accuracy"]
    except SpectropeError as error:
        return error


def do_call(
    function: Callable[[torch.device, Watch], Any],
    place: str,
    threads: int,
    files: Sequence[Path],
    board: Any,
) -> Any:
    """Call a function in a worker of the cluster.

    Returns:
        Its result, or an error that a user can fix.
    """
    _prepare(threads, files)
    try:
        return function(torch.device(place), throttled(board.tell.remote))
    except SpectropeError as error:
        return error


def _prepare(threads: int, files: Sequence[Path]) -> None:
    torch.set_num_threads(threads)
    keep_freed_memory()
    for file in files:
        load_file(file)


def asked_to_stop(ask: Callable[[], bool]) -> Stop:
    """A stop request that is polled elsewhere, at intervals."""
    answer, asked = False, float("-inf")

    def stop() -> bool:
        nonlocal answer, asked
        if not answer and time.monotonic() - asked >= SECONDS_BETWEEN_LOOKS:
            answer, asked = ask(), time.monotonic()
        return answer

    return stop


def _ask(board: Any) -> bool:
    """Whether a stop has been requested.

    While a task waits in `ray.get`, Ray lends its processors to another task; so this waits outside Ray.
    """
    return board.is_stopping.remote().future().result()


def _oversee(
    ray: Any,
    sent: Submitted,
    stop: Stop,
    watch: Watch,
    keep: Callable[[Any], None],
    require_alive: Callable[[Any], None],
) -> None:
    """Forward progress and results until no job is left.

    Raises:
        Interrupted: After Ctrl-C.
        LostError: If the head or every machine that can run a job is lost.
        SpectropeError: If a job failed.
    """
    pending, mistakes = dict(sent.pending), []
    checked = time.monotonic()
    while pending:
        done, _ = ray.wait(list(pending), timeout=SECONDS_BETWEEN_LOOKS)
        for progress in ray.get(sent.board.take.remote()):
            if progress.stage != "done":
                watch(progress)
        for future in done:
            number, job = pending.pop(future)
            outcome = _outcome(ray, future, job.experiment.label)
            if isinstance(outcome, SpectropeError):
                mistakes.append(outcome)
                continue
            harvested, accuracy = outcome
            keep(harvested)
            watch(Progress("done", 1, 1, accuracy, number))
        if stop():
            sent.board.stop.remote()
        if time.monotonic() - checked >= SECONDS_BETWEEN_CHECKS:
            checked = time.monotonic()
            require_alive(ray)
    _tell(mistakes)


def _outcome(ray: Any, future: Any, label: str) -> Any:
    try:
        return ray.get(future)
    except (ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError):
        return EngineError(f"{label}: the worker died {RETRIES + 1} times; giving up.")


def _tell(mistakes: Sequence[SpectropeError]) -> None:
    for mistake in mistakes:
        if not isinstance(mistake, Interrupted):
            raise mistake
    if mistakes:
        raise Interrupted("stopped; every run is saved.")


def _require_answer(address: str | None) -> None:
    """Try the host and port of an address that names them.

    Raises:
        OSError: If nothing listens there.
    """
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), SECONDS_TO_ANSWER).close()


def _ray() -> Any:
    """The Ray library, configured to leave the visible GPUs unchanged.

    Raises:
        UnsupportedError: If it is not installed.
    """
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError:
        raise UnsupportedError("engine 'ray' needs Ray; pip install 'spectrope[ray]'.") from None
    return ray
