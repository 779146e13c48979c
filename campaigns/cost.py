"""What integrity costs: digests, forcing to disk, and locks, as a share of a run at scale mini.

`python -m campaigns.cost` writes, reads back and verifies what such a run keeps, many times, and divides the
processor time by that of training the run, which its manifest holds.
"""

import argparse
import hashlib
import shutil
import statistics
import time
from pathlib import Path
from typing import Any

from campaigns.faults import scratch
from campaigns.harness import store
from campaigns.readers import quiet

REPEATS = 20


def timed(call: Any) -> float:
    """Median processor seconds of a call."""
    seconds = []
    for _ in range(REPEATS):
        begun = time.process_time()
        call()
        seconds.append(time.process_time() - begun)
    return statistics.median(seconds)


def measured(place: Path) -> dict[str, Any]:
    """Processor seconds of a run at scale mini and of everything that keeps it whole."""
    from spectrope.cli import main as spectrope
    from spectrope.store import find_runs
    from spectrope.store.digests import write_verified

    with quiet():
        assert spectrope(("train", "--runs", str(place / "runs"))) == 0
    (run,) = find_runs(place / "runs")
    training = run.manifest["cpu_seconds"]
    files = [path for path in run.path.iterdir() if path.suffix != ".sha256"]
    contents = {path: path.read_bytes() for path in files}
    plain = place / "plain"
    plain.mkdir()

    def write_plainly() -> None:
        for path, content in contents.items():
            (plain / path.name).write_bytes(content)

    def write_whole() -> None:
        for path, content in contents.items():
            write_verified(path, content)

    def lock() -> None:
        with run.lock():
            pass

    parts = {
        "written_with_digests_and_forced_to_disk": timed(write_whole) - timed(write_plainly),
        "verified": timed(run.verify),
        "locked": timed(lock),
    }
    size = sum(map(len, contents.values()))
    everything = b"".join(contents.values())
    return {
        "training_cpu_seconds": training,
        "bytes": size,
        "sha256_cpu_seconds": timed(lambda: hashlib.sha256(everything).digest()),
        "cpu_seconds": {name: round(seconds, 6) for name, seconds in parts.items()},
        "share_percent": round(100 * sum(parts.values()) / training, 4),
    }


def main() -> None:
    """Run the campaign and store its figures."""
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    parser.add_argument("--unstored", action="store_true", help="print the figures and keep no file")
    asked = parser.parse_args()
    place = scratch()
    try:
        figures = measured(place)
        print(f"integrity costs {figures['share_percent']} % of a mini run")
        store("cost", "mini run", figures, keep=not asked.unstored)
    finally:
        shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    main()
