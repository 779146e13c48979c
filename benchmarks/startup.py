"""Start-up time of commands, compared with `import torch`: `python -m benchmarks.startup`.

Each call runs in a new process, and its processor time is measured.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial

from benchmarks.harness import Case, run

from spectrope.cli.catalogue import commands

REPEATS = 3
TORCH = ("-c", "import torch")


def new_process(*arguments: str) -> None:
    """Run Python once, in an empty folder, and throw its output away."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, *arguments], check=True, capture_output=True, cwd=folder)


def processor_time() -> float:
    """Processor time of all finished child processes, in seconds."""
    spent = os.times()
    return spent.children_user + spent.children_system


def command(*words: str) -> Callable[[], None]:
    """A call that runs one command line in a new process."""
    return partial(new_process, "-m", "spectrope", *words)


def imports_no_torch(*words: str) -> None:
    """Refuse a command that loads torch."""
    code = f"import sys; from spectrope.cli import main; main({words!r}); sys.exit('torch' in sys.modules)"
    with tempfile.TemporaryDirectory() as folder:
        ended = subprocess.run([sys.executable, "-c", code], capture_output=True, cwd=folder)
    assert ended.returncode == 0, f"{' '.join(words)} loads torch"


def case(*words: str, goal: str) -> Case:
    """A command line, gated by not loading torch, beside `import torch`."""
    gate, reference = partial(imports_no_torch, *words), partial(new_process, *TORCH)
    return Case(" ".join(words), gate, command(*words), reference, goal=goal, clock=processor_time)


def main() -> None:
    """Time `--help` of the program and of every command, and the commands that list."""
    helps = [case(name, "--help", goal=">= 2x") for name in commands()]
    lists = [case("encodings", goal=">= 1x"), case("runs", "--runs", ".", goal=">= 1x")]
    run("startup", [case("--help", goal=">= 2x"), *helps, *lists], repeats=REPEATS)


if __name__ == "__main__":
    main()
