"""Many writers: two to eight processes carry out one plan in one folder of runs and one file of rows.

`python -m campaigns.writers` starts them in namespaces of their own, so that each has process id 1 and all
have one host name, as containers with a shared disk do. They are stopped and continued, killed and started
again, and their clocks jump. Each records when it begins and ends to train. In the end every run must have
been finished once, no run trained by two at a time, weights must be those of one undisturbed process, and
the file must hold one whole row for each run.
"""

import argparse
import contextlib
import ctypes
import json
import os
import random
import shutil
import signal
import sys
import time
import traceback
import warnings
from collections import Counter
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from campaigns.faults import scratch
from campaigns.harness import store
from campaigns.server import SIZES, checkpoint_every_step, digest

CLONE_NEWPID = 0x20000000
RUNS = 4
SECONDS = time.monotonic  # Before any clock is made to jump.
CHANCES = {"stop": 0.5, "kill": 0.25}


def plan() -> list[Any]:
    """Tiny experiments."""
    from spectrope.lab import experiment

    base = experiment("distance", "rope", epochs=2, n_examples=150)
    training = replace(base.training, batch_size=32, micro_batch=32, eval_examples=20)
    tiny = replace(base, model=replace(base.model, **SIZES), training=training)
    return [replace(tiny, seed=seed) for seed in range(RUNS)]


@dataclass(frozen=True)
class Place:
    """A folder that writers share."""

    folder: Path

    @property
    def history(self) -> Path:
        """What writers tell, a line each."""
        return self.folder / "history"

    @property
    def errors(self) -> Path:
        """Tracebacks of writers."""
        return self.folder / "errors"

    def tell(self, writer: int, event: str, run: str) -> None:
        """Add a line to the history, whole."""
        line = json.dumps([SECONDS(), writer, event, run]) + "\n"
        handle = os.open(self.history, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        os.write(handle, line.encode())
        os.close(handle)

    def events(self) -> list[tuple[float, int, str, str]]:
        """The history in the order of time."""
        return sorted(tuple(json.loads(line)) for line in self.history.read_text().splitlines())


class Jumping(datetime):
    """A clock that jumps by days, back and forth."""

    @classmethod
    def now(cls, tz: Any = None) -> datetime:
        return datetime.now(tz) + timedelta(days=random.choice((-400, 0, 400)))


def write(place: Place, writer: int, seed: int, jump: bool) -> None:
    """Carry out the plan in an order of one's own, and append a row for each run."""
    import torch

    from spectrope.core import SpectropeWarning
    from spectrope.lab import job
    from spectrope.lab.job import Job, complete
    from spectrope.lab.training.loop import Trainer
    from spectrope.store import Run
    from spectrope.study.rows import StudyRow, StudyRows

    warnings.simplefilter("ignore", SpectropeWarning)
    draw = random.Random(seed)
    fit, finish = Trainer.fit, Run.finish

    def told_fit(trainer: Any, *arguments: Any) -> Any:
        place.tell(writer, "begin", trainer.run.id)
        return fit(trainer, *arguments)

    def told_finish(run: Run, manifest: Any) -> None:
        finish(run, manifest)
        place.tell(writer, "finish", run.id)

    Trainer.fit, Run.finish = told_fit, told_finish  # pyright: ignore[reportAttributeAccessIssue]
    if jump:
        job.datetime = Jumping  # pyright: ignore[reportAttributeAccessIssue]
    jobs = [Job(one) for one in plan()]
    draw.shuffle(jobs)
    rows = StudyRows.load(place.folder / "rows.jsonl")
    for one in jobs:
        rows.add(StudyRow.of(complete(one, place.folder / "runs", torch.device("cpu"))))


def started(place: Place, writer: int, seed: int, jump: bool) -> int:
    """Start a writer as process 1 of a namespace of its own, where the system allows it; its id here."""
    outer = os.fork()
    if outer:
        with contextlib.suppress(OSError):  # It has done so itself, or ended.
            os.setpgid(outer, outer)
        return outer
    code = 70
    try:
        os.setpgid(0, 0)
        if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWPID) == 0 and (inner := os.fork()):
            _, status = os.waitpid(inner, 0)
            os._exit(0 if status == 0 else 1)
        write(place, writer, seed, jump)
        code = 0
    except BaseException:
        with place.errors.open("a") as errors:
            traceback.print_exc(file=errors)
    finally:
        os._exit(code)


def disturb(place: Place, writers: int, seed: int) -> dict[str, int]:
    """Run writers to their end, stopping, continuing and killing them; how often each was done."""
    draw, counts = random.Random(seed), Counter[str]()
    left = {started(place, n, seed + n, jump=n % 2 == 1): n for n in range(writers)}
    number = writers
    while left:
        time.sleep(draw.uniform(0.02, 0.3))
        for process in list(left):
            if os.waitpid(process, os.WNOHANG)[0]:
                counts["ended"] += 1
                del left[process]
        if not left:
            break
        victim = draw.choice(list(left))
        if draw.random() < CHANCES["stop"]:
            counts["stopped"] += 1
            _signal(victim, signal.SIGSTOP)
            time.sleep(draw.uniform(0.0, 0.5))
            _signal(victim, signal.SIGCONT)
        elif draw.random() < CHANCES["kill"] and counts["killed"] < 3 * writers:
            counts["killed"] += 1
            _signal(victim, signal.SIGKILL)
            os.waitpid(victim, 0)
            place.tell(left.pop(victim), "killed", "")
            left[started(place, number, seed + number, jump=number % 2 == 1)] = number
            number += 1
    return dict(counts)


def _signal(victim: int, number: signal.Signals) -> None:
    """Send a signal to a writer and its child, if they have not just ended."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(victim, number)


def faults_of(place: Place, whole: dict[str, str]) -> list[str]:
    """What is wrong with a history and with what it left."""
    from spectrope.store import read_records

    faults, events = [], place.events()
    finished = Counter(run for _, _, event, run in events if event == "finish")
    faults += [f"run {run} was finished {n} times" for run, n in finished.items() if n != 1]
    if len(finished) != RUNS:
        faults.append(f"{len(finished)} of {RUNS} runs were finished")
    at_work: dict[str, int] = {}
    for _, writer, event, run in events:
        if event == "begin":
            if run in at_work:
                faults.append(f"run {run} was trained by writers {at_work[run]} and {writer} at a time")
            at_work[run] = writer
        at_work = {
            one: owner
            for one, owner in at_work.items()
            if not (event == "finish" and one == run) and not (event == "killed" and owner == writer)
        }
    if place.errors.exists():
        faults.append(f"a writer failed: {place.errors.read_text()[-1500:]}")
    records, complaints = read_records(place.folder / "rows.jsonl")
    rows = Counter(record["run"] for record in records)
    faults += [f"run {run} has {n} rows" for run, n in rows.items() if n != 1]
    faults += [f"a row is lost or torn: {complaint}" for complaint in complaints]
    if len(rows) != RUNS:
        faults.append(f"{len(rows)} of {RUNS} rows are there")
    left = digest(place.folder / "runs")
    faults += [
        f"{name} differs" for name in sorted(left.keys() | whole.keys()) if left.get(name) != whole.get(name)
    ]
    return faults


def in_child(work: Any) -> Any:
    """The result of a function, called in a child, since no child inherits the threads of polars."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        try:
            with os.fdopen(writer, "w") as out:
                json.dump(work(), out)
            os._exit(0)
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", flush=True)
            os._exit(70)
    os.close(writer)
    with os.fdopen(reader) as content:
        result = content.read()
    os.waitpid(child, 0)
    return json.loads(result)


def load() -> None:
    """Import what writers need, once for all."""
    import torch

    torch.set_num_threads(1)
    import spectrope.lab.training.laboratory
    import spectrope.lab.training.loop
    import spectrope.study.rows  # noqa: F401

    checkpoint_every_step()


def histories(place: Path, times: int, seed: int) -> dict[str, Any]:
    """So many histories of two to eight writers, each in a folder of its own."""
    load()
    whole_place = Place(place / "whole")
    whole_place.folder.mkdir(parents=True)

    def undisturbed() -> dict[str, str]:
        write(whole_place, 0, 0, jump=False)
        return digest(whole_place.folder / "runs")

    whole = in_child(undisturbed)
    faults: list[str] = []
    counts, events = Counter[str](), 0
    for number in range(times):
        here = Place(place / str(number))
        here.folder.mkdir()
        writers = 2 + number % 7
        counts.update(disturb(here, writers, seed + 1000 * number))
        wrong = in_child(lambda here=here: faults_of(here, whole))
        faults += [f"history {number} of {writers} writers: {one}" for one in wrong]
        events += len(here.events())
        shutil.rmtree(here.folder)
    figures = {"histories": times, "writers": "2 to 8", "runs_each": RUNS, "events": events}
    return {**figures, **counts, "faults": faults}


def main() -> None:
    """Run the campaign and store its figures."""
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    parser.add_argument("--histories", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--unstored", action="store_true", help="print the figures and keep no file")
    asked = parser.parse_args()
    place, begun = scratch(), time.monotonic()
    try:
        figures = histories(place, asked.histories, asked.seed)
        figures |= {"seed": asked.seed, "seconds": round(time.monotonic() - begun)}
        print(f"{figures['histories']} histories, {len(figures['faults'])} faults")
        print("\n".join(figures["faults"][:20]))
        store("writers", "histories", figures, keep=not asked.unstored)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    sys.exit(bool(figures["faults"]))


if __name__ == "__main__":
    main()
