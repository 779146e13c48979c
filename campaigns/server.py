"""Carries out commands of the program in children of one process that has loaded everything: a fork each.

`python -m campaigns.server` reads requests as lines of JSON and answers each with a line. It is started by
`campaigns.faults.Server`, with `faults.so` loaded before it.
"""

import contextlib
import ctypes
import gc
import hashlib
import json
import multiprocessing
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

VOLATILE = {  # Facts of a run that differ from one machine or moment to the next.
    "finished_at",
    "seconds",
    "cpu_seconds",
    "commit",
    "device",
    "machine",
    "peak_memory_mib",
    "memory_before_mib",
    "check",
}
END = b"</html>"
IGNORED = (".damaged", ".tmp-", ".lock", ".spectrope-scratch-")
SIZES = {"d_model": 16, "n_heads": 2, "n_layers": 2, "d_ff": 16}


def checkpoint_every_step() -> None:
    """Write a checkpoint after every step, so that short runs have many."""
    from spectrope.lab.training import state

    state.SECONDS_BETWEEN_CHECKPOINTS = 0.0


if __name__ == "__mp_main__":  # In a worker process of a command.
    checkpoint_every_step()


def load() -> None:
    """Import what commands need, and make the script of pages; no child may need a thread of this process."""
    import torch

    torch.set_num_threads(1)
    import transformers.models.llama.modeling_llama  # noqa: F401

    import spectrope.checkpoints.commands.audit
    import spectrope.cli.commands.ablate
    import spectrope.cli.commands.compare
    import spectrope.cli.commands.report
    import spectrope.cli.commands.runs
    import spectrope.cli.commands.train
    import spectrope.grokking.commands.grok
    import spectrope.grokking.trainer
    import spectrope.lab.engines.local
    import spectrope.lab.training.loop
    import spectrope.study.commands.claims
    from spectrope.encodings import ENCODINGS
    from spectrope.figures import FIGURES
    from spectrope.tasks import TASKS

    for registry in (ENCODINGS, TASKS, FIGURES):
        tuple(registry)  # Imports their modules.
    draw_once()
    spectrope.lab.engines.local.START_METHOD = "fork"  # Workers that have loaded everything as well.
    checkpoint_every_step()
    gc.collect()
    gc.freeze()  # Else every child looks through all of this for garbage, and copies its memory.


def draw_once() -> None:
    """Make the script of pages and one chart: what is kept of the first ones takes seconds."""
    import altair as alt

    from spectrope.figures import base, shell

    shell._bundle()
    tooltip = [base.exact("y", "y")]
    chart = alt.Chart().mark_line().encode(x="x:Q", y="y:Q", detail="seed:N", tooltip=tooltip)
    base.Marks([{}], chart.encode(color=base.colour(["rope"]), opacity=base.emphasised())).spec()


def make_tiny() -> None:
    """Let every scale of the study be tiny, and steps be timed once; a study folder of its own keeps such
    rows apart."""
    from dataclasses import replace
    from functools import partial

    from spectrope.lab.training import laboratory
    from spectrope.lab.training.scales import Preset, Scale

    preset_of = Scale.__getitem__

    def tiny(scale: Scale, task: str) -> Preset:
        preset = preset_of(scale, task)
        model = replace(preset.model, **SIZES)
        training = replace(preset.training, epochs=1, batch_size=32, micro_batch=32, eval_examples=20)
        return replace(preset, model=model, training=training, n_examples=100)

    laboratory.median_seconds = partial(laboratory.median_seconds, steps=1)
    Scale.__getitem__ = tiny  # pyright: ignore[reportAttributeAccessIssue]


def digest(folder: Path) -> dict[str, str]:
    """What a command has left: a digest of each file, without what differs from one time to the next."""
    paths = (path for path in sorted(folder.rglob("*")) if path.is_file())
    kept = (path for path in paths if not _is_ignored(path.relative_to(folder)))
    return {str(path.relative_to(folder)): _digest(path) for path in kept} | _verified(folder)


def _verified(folder: Path) -> dict[str, str]:
    """Whether the files of each run below a folder match their digests."""
    from spectrope.core import StoreError
    from spectrope.store import load_run

    found = {}
    files = (one for one in folder.glob("**/config.json.sha256") if not _is_scratch(one.relative_to(folder)))
    for path in sorted(one.parent for one in files):
        try:
            found[f"{path.relative_to(folder)} verified"] = str(load_run(path).verify())
        except StoreError as error:
            found[f"{path.relative_to(folder)} verified"] = str(error)
    return found


def _is_ignored(path: Path) -> bool:
    """Whether a file is no result: a digest, something set aside, or temporary."""
    hidden = any(part.startswith(IGNORED) for part in path.parts)
    return path.suffix == ".sha256" or _is_scratch(path) or hidden


def _is_scratch(path: Path) -> bool:
    """Whether a path is below the folder of temporary files."""
    return path.parts[0] == "tmp"


def _digest(path: Path) -> str:
    content = path.read_bytes()
    if path.suffix == ".parquet":
        import polars as pl

        content = repr(pl.read_parquet(path).to_dict(as_series=False)).encode()
    elif path.suffix == ".html":  # Pages say how long something took.
        content = content.strip()[-len(END) :]
    elif path.suffix == ".json":
        content = _lasting(json.loads(content))
    elif path.suffix == ".jsonl":  # Jobs of several workers end in any order.
        content = b"\n".join(sorted(_lasting(json.loads(line)) for line in content.splitlines()))
    return hashlib.sha256(content).hexdigest()


def _lasting(value: Any) -> bytes:
    return json.dumps(_without(value), sort_keys=True).encode()


def _without(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without(one) for key, one in value.items() if key not in VOLATILE}
    return [_without(one) for one in value] if isinstance(value, list) else value


def serve(requests: Iterable[str], answer: Callable[[dict[str, Any]], object]) -> None:
    """Carry out requests until there are no more."""
    preloaded = ctypes.CDLL(None)
    if hasattr(preloaded, "campaign_prepare"):
        preloaded.campaign_prepare()
        answer({"control": preloaded.campaign_size()})
    else:
        answer({"control": 0})
    for line in requests:
        answer(_answered(json.loads(line)))


def _answered(request: dict[str, Any]) -> dict[str, Any]:
    begun = time.monotonic()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _child(request, writer)
    os.close(writer)
    result, ended = _collect(reader, child, begun + request.get("limit", 900.0))
    os.close(reader)
    if not ended:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    answer: dict[str, Any] = {"code": code if ended else "hang", "seconds": time.monotonic() - begun}
    return answer | (json.loads(result) if result else {})


def _collect(reader: int, child: int, deadline: float) -> tuple[bytes, bool]:
    """What the child sends, until it ends."""
    content = b""
    while (left := deadline - time.monotonic()) > 0:
        if select.select([reader], [], [], min(left, 0.05))[0]:
            piece = os.read(reader, 65536)
            content += piece
            if not piece:
                while time.monotonic() < deadline:
                    if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                        return content, True
                    time.sleep(0.005)
        elif os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            return content, True
    return content, False


def _child(request: dict[str, Any], writer: int) -> None:
    os.setpgid(0, 0)
    code = 70
    try:
        if request["do"] == "digest":
            os.write(writer, json.dumps({"digest": digest(Path(request["folder"]))}).encode())
            code = 0
        else:
            code = _command(request)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _command(request: dict[str, Any]) -> int:
    folder = Path(request["folder"])
    os.chdir(folder)
    for name, handle in (("out", 1), ("err", 2)):
        file = os.open(request[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(file, handle)
    sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w", buffering=1)
    os.environ.update({"TMPDIR": str(folder / "tmp"), "COLUMNS": "200"})
    import tempfile

    tempfile.tempdir = None
    from spectrope.cli import main
    from spectrope.console import terminal

    terminal.console.file, terminal.errors.file = sys.stdout, sys.stderr
    if request.get("tiny"):
        make_tiny()
    code = main(request["words"])
    sys.stdout.flush()
    for worker in multiprocessing.active_children():
        worker.kill()
    return code


if __name__ == "__main__":
    load()
    serve(sys.stdin, lambda line: print(json.dumps(line), flush=True))
