"""Ray: sweeps on a real cluster of two machines of this one, which lose a worker, a machine or their head.

`python -m campaigns.ray_cluster` starts two raylets, carries `spectrope compare --engine ray` out on them,
and does one thing to the cluster in the middle. Where machines are left, the sweep must end with the tables
of a local one; else the command must end with one line and exit code 4, and go on where it is typed again
with the address of a cluster that was started anew.
"""

import argparse
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from campaigns.faults import scratch
from campaigns.harness import store
from campaigns.server import digest

SWEEP = ("compare", "--encodings", "rope", "nope", "alibi", "--tasks", "distance", "--epochs", "4")
SIZES = ("--examples", "150", "--set", "batch_size=8", "micro_batch=8", "eval_examples=8", "d_model=16")
WORDS = (*SWEEP, *SIZES, "n_heads=2", "n_layers=2", "d_ff=16")
LIMIT = 1500.0  # Seconds of one command.
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "RAY_worker_niceness": "0", "RAY_DEDUP_LOGS": "0"}


class Cluster:
    """Two raylets with a processor each.

    Args:
        store_mib: Memory of each object store.
    """

    def __init__(self, store_mib: int = 80) -> None:
        from ray.cluster_utils import Cluster as RayCluster

        self.options: dict[str, Any] = {"num_cpus": 1, "object_store_memory": store_mib * 2**20}
        head = {**self.options, "include_dashboard": False}
        self.cluster = RayCluster(initialize_head=True, head_node_args=head)
        self.other = self.cluster.add_node(**self.options)
        self.address = str(self.cluster.address)

    def kill(self, node: Any, what: str) -> None:
        """Kill a process of a node."""
        for one in node.all_processes[what]:
            os.kill(one.process.pid, signal.SIGKILL)

    def kill_worker(self) -> None:
        """Kill one process that trains."""
        for process in Path("/proc").iterdir():
            try:
                if process.name.isdigit() and (process / "cmdline").read_bytes().startswith(b"ray::do_job"):
                    os.kill(int(process.name), signal.SIGKILL)
                    return
            except OSError:  # It has just ended.
                continue
        raise AssertionError("no worker trains")

    def end(self) -> None:
        """Stop all of it."""
        self.cluster.shutdown()


def begun(folder: Path, words: tuple[str, ...]) -> subprocess.Popen[str]:
    """A command, in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "spectrope", *words],
        cwd=folder,
        env={**os.environ, **ENVIRONMENT},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def trains(folder: Path) -> bool:
    """Whether any run has a checkpoint or tables."""
    return any(folder.glob("runs/*/.lock"))


def disturbed(
    place: Path, name: str, act: Callable[[Cluster], object], whole: dict[str, str]
) -> dict[str, Any]:
    """A sweep on a cluster to which something is done once it trains; if it failed, again on a new one."""
    folder = place / re.sub(r"\W", "-", name)
    folder.mkdir()
    cluster = Cluster()
    first = begun(folder, (*WORDS, "--engine", "ray", "--address", cluster.address))
    deadline = time.monotonic() + LIMIT
    while not trains(folder) and first.poll() is None and time.monotonic() < deadline:
        time.sleep(0.2)
    time.sleep(3.0)
    act(cluster)
    begun_at = time.monotonic()
    code, out, err = _ended(first)
    result: dict[str, Any] = {
        "code": code,
        "seconds_after": round(time.monotonic() - begun_at),
        "lines_of_errors": err.count("\n"),
        "last_line": (err.strip().splitlines() or [""])[-1],
        "noise": [line[:120] for line in out.splitlines() if "raylet" in line or "state-dump" in line][:2],
    }
    cluster.end()
    if code != 0:
        restarted = Cluster()
        again = begun(folder, (*WORDS, "--engine", "ray", "--address", restarted.address))
        result["code_again"], _, _ = _ended(again)
        restarted.end()
    result["tables_as_local"] = digest(folder / "runs") == whole
    return result


def _ended(process: subprocess.Popen[str]) -> tuple[int | str, str, str]:
    try:
        out, err = process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        return "hang", out, err
    return process.returncode, out, err


def nothing_listens(place: Path) -> dict[str, Any]:
    """An address at which nothing listens, which is refused before anything is measured."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    start = time.monotonic()
    code, _, err = _ended(begun(place, (*WORDS, "--engine", "ray", "--address", f"127.0.0.1:{port}")))
    return {"code": code, "seconds": round(time.monotonic() - start, 1), "last_line": err.strip()}


def fill(cluster: Cluster) -> None:
    """Fill the object stores of both machines."""
    script = (
        "import ray, time; ray.init(address={!r}, log_to_driver=False)\n"
        "kept = [ray.put(bytes(10 * 2**20)) for _ in range(30)]; time.sleep(20)"
    )
    subprocess.Popen([sys.executable, "-c", script.format(cluster.address)], stdout=-3, stderr=-3)


ACTS: dict[str, Callable[[Cluster], object]] = {
    "nothing": lambda cluster: None,
    "a worker killed": Cluster.kill_worker,
    "the other machine's raylet killed": lambda cluster: cluster.kill(cluster.other, "raylet"),
    "the head's raylet killed": lambda cluster: cluster.kill(cluster.cluster.head_node, "raylet"),
    "the head killed": lambda cluster: [
        cluster.kill(cluster.cluster.head_node, what) for what in ("gcs_server", "raylet")
    ],
    "a machine added": lambda cluster: cluster.cluster.add_node(**cluster.options),
    "object stores full": fill,
}


def main() -> None:
    """Run the campaign and store its figures."""
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    parser.add_argument("--acts", nargs="+", default=[*ACTS, "nothing listens"])
    parser.add_argument("--unstored", action="store_true", help="print the figures and keep no file")
    asked = parser.parse_args()
    os.environ.update(ENVIRONMENT)
    place = scratch()
    try:
        (place / "local").mkdir()
        code, _, err = _ended(begun(place / "local", WORDS))
        assert code == 0, err
        whole = digest(place / "local" / "runs")
        for name in asked.acts:
            if name == "nothing listens":
                found = nothing_listens(place)
            else:
                found = disturbed(place, name, ACTS[name], whole)
            print(name, found, flush=True)
            store("ray_cluster", name, found, keep=not asked.unstored)
    finally:
        shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    main()
