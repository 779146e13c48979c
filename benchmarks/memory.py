"""Training on a CPU with freed memory kept (`keep_freed_memory`), against glibc's defaults.

Scale mini, RoPE, each side in a process of its own, since the setting holds for a whole process; memory is
what each process holds resident at the end. Run as `python -m benchmarks.memory`.
"""

import hashlib
import multiprocessing
import tempfile
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from benchmarks.harness import Case, Row, run, status_mib

from spectrope.core.memory import keep_freed_memory
from spectrope.lab.runs import run_for
from spectrope.lab.training.loop import Trainer
from spectrope.lab.training.scales import experiment

STEPS = 20


def steps_on_request(pipe: Connection, task: str, keep: bool) -> None:
    """Take some steps for each message, and answer with the weights' digest and the resident MiB."""
    torch.set_num_threads(1)
    if keep:
        keep_freed_memory()
    with tempfile.TemporaryDirectory() as folder:
        one = experiment(task, "rope", scale="mini")
        one = replace(one, n_train=STEPS * one.training.batch_size)
        trainer = Trainer(one, run_for(one, Path(folder)), torch.device("cpu"))
        while pipe.recv():  # until it is told to end
            for step in range(STEPS):
                trainer.step(trainer.batch(0, step))
            weights = torch.cat([p.detach().flatten() for p in trainer.state.model.parameters()])
            pipe.send((hashlib.sha256(weights.numpy().tobytes()).hexdigest(), status_mib("VmRSS")))


class Side:
    """One process that takes steps."""

    def __init__(self, task: str, keep: bool) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=steps_on_request, args=(theirs, task, keep), daemon=True)
        self.process.start()

    def __call__(self) -> tuple[str, float]:
        """Take the next steps."""
        self.pipe.send(True)
        return self.pipe.recv()


def main() -> None:
    """Time both tasks."""
    sides = {task: (Side(task, True), Side(task, False)) for task in ("distance", "counting")}

    def case(task: str) -> Case:
        kept, plain = sides[task]

        def gate() -> None:
            assert kept()[0] == plain()[0], "the weights differ"

        return Case(f"{STEPS} steps, {task}", gate, kept, plain, "faster")

    def resident(_: list[Row]) -> dict[str, Any]:
        held = {task: {"kept": kept()[1], "default": plain()[1]} for task, (kept, plain) in sides.items()}
        for side in (side for pair in sides.values() for side in pair):
            side.pipe.send(False)
        return {"resident_mib": held}

    run("memory", map(case, sides), repeats=9, summary=resident)


if __name__ == "__main__":
    main()
