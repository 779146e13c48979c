"""Runs that are killed in the middle of writing a checkpoint, in processes of their own."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

SCRIPT = """
import os, pathlib, signal, sys, torch
torch.set_num_threads(1)  # Before anything is computed, so that no thread is lost in a fork.
import {module} as subject
from spectrope.store import files
from spectrope.lab.training import state as sitting
sitting.SECONDS_BETWEEN_CHECKPOINTS = 0.0
replace = os.replace

def train_and_die(root, moment):
    written = 0
    def dying(source, target):
        nonlocal written
        written += str(target).endswith("checkpoint.safetensors")
        if written == moment:
            os.kill(os.getpid(), signal.SIGKILL)
        replace(source, target)
    files.os.replace = dying
    subject.train_at(pathlib.Path(root))

for moment, root in zip(map(int, sys.argv[1::2]), sys.argv[2::2]):
    child = os.fork()
    if child == 0:
        train_and_die(root, moment)
        os._exit(0)
    if os.WTERMSIG(os.waitpid(child, 0)[1]) != signal.SIGKILL:
        sys.exit(f"nothing was killed at {{moment}}")
"""


def kill(module: str, roots: Mapping[int, Path]) -> None:
    """Call a test module's `train_at` once per folder and kill it at its n-th checkpoint, n being the key."""
    words = [str(word) for moment, root in roots.items() for word in (moment, root)]
    script = SCRIPT.format(module=module)
    here = Path(__file__).parents[3]
    subprocess.run([sys.executable, "-c", script, *words], check=True, cwd=here)
