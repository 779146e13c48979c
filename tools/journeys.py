"""Record which files of the package one journey of a user enters.

    python tools/journeys.py NAME SRC FOLDER RECORD

Runs the journey NAME with the package in SRC, in FOLDER, and writes the paths of the files that it enters to
RECORD, as JSON. A journey enters a file if it executes the body of one of its functions. What runs while a
module is imported (the bodies of modules and classes, decorators, registration) does not count, nor do the
methods that `dataclasses` generates. Only this process is watched, so every journey computes in it alone. A
journey goes through the command line wherever a command leads along it.

a: `compare` trains one task with two encodings for one epoch, ablates every head and writes the report.
b: `ablate` loads the first run of that comparison, which FOLDER must hold, and ablates every head.
c: `audit` measures a Llama of two layers with random weights, saved in FOLDER.
d: `claims` plans one claim without rows, which times a few steps of training and measuring its runs, harvests
   the runs that FOLDER holds, and judges the committed rows for a replication page.
e: `attention(..., impl="polynomial")`, forward and backward.
"""

import importlib
import inspect
import json
import os
import pkgutil
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

PACKAGE = "spectrope"
CPU = ("--device", "cpu")


class Recorder:
    """A profile function that notes the files whose functions are called."""

    def __init__(self, package: Path) -> None:
        self.prefix = f"{package.resolve()}{os.sep}"
        self.entered: set[str] = set()

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        path = frame.f_code.co_filename
        if event != "call" or path in self.entered or not path.startswith(self.prefix):
            return
        if path.endswith(".py") and _is_run(frame):  # Compiled templates are functions too.
            self.entered.add(path)

    def watch(self, journey: Callable[[], None]) -> None:
        """Record what a journey calls, in all threads that it starts."""
        threading.setprofile(self)
        sys.setprofile(self)
        try:
            journey()
        finally:
            sys.setprofile(None)
            threading.setprofile(None)


def _is_run(frame: FrameType) -> bool:
    """Whether a frame is of a function, and no import is under way."""
    if not frame.f_code.co_flags & inspect.CO_OPTIMIZED:  # The body of a module or class.
        return False
    caller = frame.f_back
    while caller is not None:
        if caller.f_code.co_filename.startswith("<frozen importlib"):
            return False
        caller = caller.f_back
    return True


def import_all() -> None:
    """Import every module of the package, so that a journey imports as little as possible."""
    package = importlib.import_module(PACKAGE)
    for module in pkgutil.walk_packages(package.__path__, f"{PACKAGE}."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)


def command(*arguments: str) -> None:
    """Run a command of the package in this process.

    Raises:
        SystemExit: If it fails.
    """
    code = importlib.import_module(f"{PACKAGE}.cli").main(arguments)
    if code != 0:
        raise SystemExit(f"`{PACKAGE} {' '.join(arguments)}` ended with {code}")


def compare() -> None:
    chosen = ("--tasks", "counting", "--encodings", "rope", "alibi", "--scale", "mini", "--seeds", "0")
    command("compare", *chosen, "--epochs", "1", "--examples", "200", "--workers", "1", *CPU)


def ablate() -> None:
    run = min(path for path in Path("runs").iterdir() if path.is_dir())
    command("ablate", str(run), *CPU)


def audit() -> None:
    command("audit", "llama", *CPU)


def save_llama() -> None:
    import transformers

    config = transformers.LlamaConfig(
        vocab_size=64,
        hidden_size=64,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
    )
    transformers.LlamaForCausalLM(config).save_pretrained("llama")


def claims() -> None:
    claim = ("counting-text", "--seeds", "0")
    plan = ("--condition", "controlled", "--dry-run", "--workers", "1", *CPU)
    command("claims", "run", *claim, *plan, "--rows", "rows")
    command("claims", "harvest", *claim, "--rows", "rows")
    command("claims", "report", "counting-text", "--rows", "results", "--out", "page.md")


def attend() -> None:
    import torch

    package = importlib.import_module(PACKAGE)
    attention = importlib.import_module(f"{PACKAGE}.attention").attention
    rotary = package.ENCODINGS["rope"]
    encoding = rotary(rotary.Config(head_dim=16))
    q, k, v = (0.1 * torch.randn(1, 2, 64, 16) for _ in range(3))
    positions = torch.arange(64)[None]
    context = package.Context(q.requires_grad_(), k.requires_grad_(), positions, positions)
    attention(context, v, encoding, causal=True, impl="polynomial").square().sum().backward()


JOURNEYS = {"a": compare, "b": ablate, "c": audit, "d": claims, "e": attend}


def main(name: str, src: Path, folder: Path, record: Path) -> None:
    """Run a journey and record what it enters."""
    sys.path.insert(0, str(src))
    os.chdir(folder)
    import_all()
    if name == "c":
        save_llama()
    recorder = Recorder(src / PACKAGE)
    recorder.watch(JOURNEYS[name])
    record.write_text(json.dumps(sorted(recorder.entered)))


if __name__ == "__main__":
    main(sys.argv[1], *(Path(argument).resolve() for argument in sys.argv[2:]))
