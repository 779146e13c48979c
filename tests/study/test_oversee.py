"""What the engine does with a cluster, on a stand-in for Ray whose workers do what a test says."""

import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.lab.engines.test_local import tiny
from tests.study.made import row

from spectrope.core.errors import ConfigError, Interrupted, SpectropeWarning, StoreError
from spectrope.core.progress import Progress
from spectrope.lab.engines import ray as overseer
from spectrope.lab.engines.base import EngineError, LostError
from spectrope.lab.engines.board import Board
from spectrope.lab.engines.ray import RETRIES, Ray
from spectrope.lab.job import Job
from spectrope.study.rows import StudyRow
from spectrope.study.study import record_of

Worker = Callable[[Board], Generator[None, None, Any]]  # Yields while it works, returns its outcome.
JOBS = [Job(tiny("rope")), Job(tiny("alibi"))]


class RayError(Exception):
    pass


class RayTaskError(RayError):
    pass


class WorkerCrashedError(RayError):
    pass


class OutOfMemoryError(RayError):
    pass


class ActorDiedError(RayError):
    pass


class Future:
    """Of a worker's outcome, which is there after as many looks as the worker yields."""

    def __init__(self, work: Generator[None, None, Any]) -> None:
        self.work, self.done = work, False
        self.outcome: Callable[[], Any] = lambda: pytest.fail("asked for before it was there")

    def look(self) -> None:
        try:
            next(self.work)
        except StopIteration as end:
            self.done, value = True, end.value
            self.outcome = lambda: value
        except Exception as error:
            self.done, mistake = True, error
            self.outcome = lambda: self._fail(mistake)

    @staticmethod
    def _fail(mistake: Exception) -> None:
        raise mistake


class Actor:
    """A board whose methods are called at a distance."""

    def __init__(self, board: Board) -> None:
        self._board = board

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any) -> Any:
            value = getattr(self._board, name)(*args)
            return SimpleNamespace(outcome=lambda: value)

        return SimpleNamespace(remote=call)


class Cluster:
    """As much of Ray as the engine uses; each job goes to the next worker."""

    exceptions = SimpleNamespace(
        RayError=RayError,
        RayTaskError=RayTaskError,
        WorkerCrashedError=WorkerCrashedError,
        OutOfMemoryError=OutOfMemoryError,
    )
    address = ""
    machines: Sequence[dict[str, float]] = ({"CPU": 1.0}, {"CPU": 8.0, "GPU": 1.0})

    def __init__(self, *workers: Worker, running: bool = False, refusals: Sequence[Exception] = ()) -> None:
        self.workers, self.running, self.refusals = list(workers), running, list(refusals)
        self.board = Board()
        self.calls: list[tuple[str, Any]] = []

    def is_initialized(self) -> bool:
        return self.running

    def init(self, **options: Any) -> None:
        self.calls.append(("init", options))
        if self.refusals:
            raise self.refusals.pop(0)
        self.running = True

    def shutdown(self) -> None:
        self.calls.append(("shutdown", None))
        self.running = False

    def get_runtime_context(self) -> SimpleNamespace:
        return SimpleNamespace(gcs_address=self.address)

    def nodes(self) -> list[dict[str, Any]]:
        dead = {"Alive": False, "Resources": {"CPU": 64.0, "GPU": 8.0}}
        return [dead, *({"Alive": True, "Resources": machine} for machine in self.machines)]

    def remote(self, **options: Any) -> Callable[[Any], Any]:
        def made(target: Any) -> Any:
            if target is Board:
                return SimpleNamespace(remote=lambda: Actor(self.board))
            self.calls.append(("share", options))
            return SimpleNamespace(options=lambda name: SimpleNamespace(remote=self._begin))

        return made

    def _begin(self, number: int, fields: Any, root: str, place: str, *shared: Any) -> Future:
        self.calls.append(("begin", (number, place)))
        return Future(self.workers.pop(0)(self.board))

    def wait(self, futures: list[Future], timeout: float) -> tuple[list[Future], list[Future]]:
        assert timeout > 0
        for future in futures:
            future.look()
        return [f for f in futures if f.done], [f for f in futures if not f.done]

    def get(self, future: Any) -> Any:
        return future.outcome()

    def told(self, name: str) -> list[Any]:
        return [what for call, what in self.calls if call == name]


def worker(outcome: Any, *told: Progress) -> Worker:
    """One that tells of its progress, once at a look, and then returns its outcome or fails with it."""

    def work(board: Board) -> Generator[None, None, Any]:
        for progress in told:
            board.tell(progress)
            yield
        if isinstance(outcome, Exception) and not isinstance(outcome, (ConfigError, StoreError, Interrupted)):
            raise outcome
        return outcome

    return work


def record(number: int) -> tuple[dict[str, Any], float]:
    return row(JOBS[number].experiment, test=90.0 + number).record(), (90 + number) / 100


@pytest.fixture
def on(monkeypatch, tmp_path: Path) -> Callable[..., list[Any]]:
    """Carries the jobs out on a cluster, and returns what is kept and told, in its order."""

    def carry_out(
        cluster: Cluster, watch: Callable[[Progress], None] | None = None, **fields: Any
    ) -> list[Any]:
        monkeypatch.setitem(sys.modules, "ray", cluster)
        log.clear()

        def note(progress: Progress) -> None:
            log.append(progress)
            if watch is not None:
                watch(progress)

        Ray(**fields)(
            JOBS, tmp_path, note, record_of, lambda kept: log.append(StudyRow.read(kept).experiment)
        )
        return log

    log: list[Any] = []
    carry_out.log = log
    return carry_out


def done(number: int) -> Progress:
    return Progress("done", 1, 1, (90 + number) / 100, number)


def test_events_are_passed_on_and_rows_come_back_to_their_jobs(on):
    steps = [
        Progress("train", 1, 9, job=0),
        Progress("train", 2, 9, job=0),
        Progress("done", 1, 1, 0.5, job=0),
    ]
    cluster = Cluster(worker(record(0), *steps), worker(record(1), Progress("ablate", 1, 4, job=1)))
    first, second = (job.experiment for job in JOBS)
    assert on(cluster) == [
        steps[0],
        Progress("ablate", 1, 4, job=1),
        steps[1],
        second,
        done(1),
        first,
        done(0),
    ]
    assert cluster.told("begin") == [(0, "cpu"), (1, "cpu")]


@pytest.mark.parametrize("death", [WorkerCrashedError(), OutOfMemoryError()])
def test_a_job_whose_workers_die_is_named_once_the_others_are_done(on, death):
    cluster = Cluster(worker(death), worker(record(1), *[Progress("train", n, 9, job=1) for n in range(4)]))
    with pytest.raises(
        EngineError, match=f"^distance/rope/seed 0: the worker died {RETRIES + 1} times; giving up"
    ):
        on(cluster)
    assert on.log[-2:] == [JOBS[1].experiment, done(1)]


def test_a_mistake_is_told_once_the_others_are_done_and_before_a_stop(on):
    mistake, later = StoreError("the disk is full."), [Progress("train", n, 9, job=1) for n in range(4)]
    with pytest.raises(StoreError, match="the disk is full"):
        on(Cluster(worker(mistake), worker(record(1), *later)))
    assert on.log[-2:] == [JOBS[1].experiment, done(1)]
    with pytest.raises(StoreError, match="the disk is full"):
        on(Cluster(worker(Interrupted("stopped at step 3.")), worker(mistake)))


def test_a_worker_that_fails_in_another_way_is_a_bug_and_keeps_its_error(on):
    cluster = Cluster(worker(ZeroDivisionError("a bug")), worker(record(1)))
    with pytest.raises(ZeroDivisionError, match="a bug"):
        on(cluster)
    assert not cluster.running


def test_a_signal_reaches_the_workers(on):
    def until_asked(board: Board) -> Generator[None, None, Any]:
        for step in range(20):
            if board.is_stopping():
                return Interrupted(f"stopped at step {step}.")
            board.tell(Progress("train", step, 20))
            yield
        pytest.fail("nobody asked to stop")

    def press(progress: Progress) -> None:
        if progress.done == 3:
            os.kill(os.getpid(), signal.SIGINT)

    cluster = Cluster(until_asked, worker(record(1)))
    with pytest.raises(Interrupted, match=r"^stopped; every run is saved\.$"):
        on(cluster, press)
    assert JOBS[1].experiment in on.log
    assert Progress("train", 5, 20) not in on.log


def test_a_cluster_that_is_there_is_used_and_left(on):
    cluster = Cluster(worker(record(0)), worker(record(1)), running=True)
    assert len(on(cluster)) == 4
    assert cluster.running
    assert cluster.told("init") == cluster.told("shutdown") == []


@pytest.mark.parametrize("fails", [False, True])
def test_a_cluster_that_is_started_has_the_workers_asked_for_and_ends(on, fails):
    cluster = Cluster(worker(StoreError("no.") if fails else record(0)), worker(record(1)))
    if fails:
        with pytest.raises(StoreError, match="no"):
            on(cluster, workers=3, cpus=2)
    else:
        on(cluster, workers=3, cpus=2)
    (options,) = cluster.told("init")
    assert (options["address"], options["num_cpus"]) == (None, 6)
    assert cluster.told("shutdown") == [None]
    assert cluster.told("share") == [{"num_cpus": 2, "num_gpus": 0.0, "max_retries": RETRIES}]


def test_a_cluster_elsewhere_keeps_its_own_size(on):
    cluster = Cluster(worker(record(0)), worker(record(1)))
    on(cluster, address="auto", workers=3, gpus=0.5)
    (options,) = cluster.told("init")
    assert options["address"] == "auto"
    assert "num_cpus" not in options
    assert cluster.told("share") == [{"num_cpus": 1, "num_gpus": 0.5, "max_retries": RETRIES}]
    assert cluster.told("begin") == [(0, "cuda"), (1, "cuda")]


@pytest.mark.parametrize(
    ("address", "error", "line"),
    [
        (
            "auto",
            ConnectionError("Could not find any running Ray.\nStart one."),
            "auto: Could not find any running Ray.",
        ),
        (None, RuntimeError("a port is taken"), "this machine: a port is taken"),
        ("ray://there", ValueError(" "), "ray://there: ValueError"),
    ],
)
def test_without_a_cluster_the_reason_is_one_line(on, address, error, line):
    cluster = Cluster(refusals=[error])
    with pytest.raises(EngineError) as told:
        on(cluster, address=address)
    assert str(told.value) == f"no Ray cluster at {line}"
    assert cluster.told("begin") == []


LATE = Exception("The current node timed out during startup. This could happen because of the load.")


def test_a_cluster_that_starts_slowly_is_waited_for_with_a_message(on, monkeypatch):
    monkeypatch.setattr(overseer, "SECONDS_OF_PATIENCE", 0.0)
    cluster = Cluster(worker(record(0)), worker(record(1)), refusals=[LATE, LATE])
    monkeypatch.setattr(cluster, "shutdown", lambda: time.sleep(0.05))
    told = r"Ray has not started here \(limit 60 s\) after 0 s; waiting\."
    with pytest.warns(SpectropeWarning, match=told) as warned:
        assert len(on(cluster, start_seconds=60.0)) == 4
    assert len(warned) == 1
    assert len(cluster.told("init")) == 3


def test_a_cluster_that_never_starts_is_given_up_after_the_limit(on):
    cluster = Cluster(refusals=[LATE])
    with pytest.raises(EngineError, match=r"Ray did not start on this machine within 1e-09 s; try again"):
        on(cluster, start_seconds=1e-9)
    elsewhere = Cluster(refusals=[LATE])
    with pytest.raises(Exception, match="timed out"):
        on(elsewhere, address="auto")


def test_a_cluster_that_is_lost_is_told_in_a_line_and_what_was_done_is_kept(on):
    slow = [Progress("train", step, 9, job=1) for step in range(4)]
    cluster = Cluster(worker(record(0)), worker(ActorDiedError("its owner has died"), *slow))
    told = (
        r"^the Ray cluster was lost \(ActorDiedError\); finished runs are kept\. "
        r"To continue, run the same command on"
    )
    with pytest.raises(LostError, match=told):
        on(cluster)
    assert JOBS[0].experiment in on.log
    assert cluster.told("shutdown") == [None]


def test_a_fault_in_a_worker_is_no_loss(on):
    with pytest.raises(RayTaskError, match="a bug"):
        on(Cluster(worker(RayTaskError("a bug")), worker(record(1))))


def test_without_a_machine_that_is_left_nothing_is_waited_for(on, monkeypatch):
    monkeypatch.setattr(overseer, "SECONDS_BETWEEN_CHECKS", 0.0)
    monkeypatch.setattr(overseer, "_head_answers", lambda ray: True)
    cluster = Cluster(
        worker(record(0)), worker(record(1), *[Progress("train", n, 9, job=1) for n in range(9)])
    )

    def lose(progress: Progress) -> None:
        cluster.machines = ({"GPU": 1.0},)

    with pytest.raises(LostError, match="no machine of the Ray cluster is left that can run a job; finished"):
        on(cluster, lose)
    assert JOBS[0].experiment in on.log


def test_a_head_that_no_longer_answers_is_told_before_ray_ends_the_process(on, monkeypatch):
    monkeypatch.setattr(overseer, "SECONDS_BETWEEN_CHECKS", 0.0)
    slow = [Progress("train", step, 9, job=1) for step in range(9)]
    cluster = Cluster(worker(record(0)), worker(record(1), *slow))
    with socket.create_server(("127.0.0.1", 0)) as head:
        cluster.address = f"127.0.0.1:{head.getsockname()[1]}"

        def lose(progress: Progress) -> None:
            if progress.done == 3:
                head.close()

        with pytest.raises(LostError, match="the head of the Ray cluster was lost; finished runs are kept"):
            on(cluster, lose)
    assert JOBS[0].experiment in on.log


@pytest.mark.parametrize(("cpus", "gpus"), [(1, 2.0), (16, 0.0), (9, 0.5)])
def test_what_no_machine_has_is_refused_at_once(on, cpus, gpus):
    cluster = Cluster()
    with pytest.raises(EngineError) as told:
        on(cluster, address="auto", cpus=cpus, gpus=gpus)
    assert str(told.value).startswith(f"a run takes {cpus} processors and {gpus:g} GPUs of one machine")
    assert "whose machines have 1 and 0, 8 and 1." in str(told.value)
    assert cluster.told("begin") == []
    assert cluster.told("shutdown") == [None]


@pytest.mark.parametrize("form", ["127.0.0.1:{}", "ray://127.0.0.1:{}", "localhost:{}"])
def test_an_address_where_nothing_listens_is_refused_before_ray_tries(on, form):
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = form.format(listening.getsockname()[1])
        on(Cluster(worker(record(0)), worker(record(1))), address=address)
    cluster = Cluster()
    with pytest.raises(EngineError, match=f"no Ray cluster at {address}: .*refused"):
        on(cluster, address=address)
    assert cluster.calls == []
