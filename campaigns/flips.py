"""Bit flips: single bits of each kind of file of a run, none of which may be read with other content.

`python -m campaigns.flips` turns a thousand random bits of each kind of file, one at a time, and reads the
file as the program does. A flip is accepted if what is read differs from what was written and nothing is
said.
"""

import argparse
import random
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from campaigns.commands import SMALL, TINY
from campaigns.faults import scratch
from campaigns.harness import store
from campaigns.readers import quiet

FLIPS = 1000


def kinds(run: Any) -> dict[str, Callable[[], Any]]:
    """How each file of a run is read."""
    return {
        "config.json": lambda: run.config,
        "manifest.json": lambda: run.manifest,
        "metrics.parquet": lambda: run.frame("metrics").to_dict(as_series=False),
        "ablation.parquet": lambda: run.frame("ablation").to_dict(as_series=False),
        "weights.safetensors": lambda: {k: v.tolist() for k, v in run.read_tensors("weights")[0].items()},
        "config.json.sha256": lambda: run.config,
        "metrics.parquet.sha256": lambda: run.frame("metrics").to_dict(as_series=False),
        "weights.safetensors.sha256": lambda: len(run.read_tensors("weights")[0]),
    }


def flipped(path: Path, read: Callable[[], Any], times: int, draw: random.Random) -> dict[str, int]:
    """How many flips of a file were refused, without effect, and accepted with other content."""
    from spectrope.core import StoreError

    content, whole = path.read_bytes(), read()
    counts = {"flips": times, "refused": 0, "without_effect": 0, "accepted": 0}
    try:
        for _ in range(times):
            turned = bytearray(content)
            turned[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
            path.write_bytes(turned)
            try:
                counts["without_effect" if read() == whole else "accepted"] += 1
            except StoreError:
                counts["refused"] += 1
    finally:
        path.write_bytes(content)
    return counts


def main() -> None:
    """Run the campaign and store its figures."""
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    parser.add_argument("--flips", type=int, default=FLIPS, help="of each kind of file")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--unstored", action="store_true", help="print the figures and keep no file")
    asked = parser.parse_args()

    from spectrope.cli import main as spectrope
    from spectrope.store import find_runs

    place, begun, accepted = scratch(), time.monotonic(), 0
    try:
        root = ("--runs", str(place / "runs"))
        with quiet():
            assert spectrope(("train", *SMALL, *TINY, *root)) == 0
            (run,) = find_runs(place / "runs")
            assert spectrope(("ablate", run.id, *root)) == 0
        draw = random.Random(asked.seed)
        figures: dict[str, Any] = {}
        for name, read in kinds(run).items():
            figures[name] = flipped(run.path / name, read, asked.flips, draw)
            accepted += figures[name]["accepted"]
            print(name, figures[name], flush=True)
        seconds = round(time.monotonic() - begun)
        store(
            "flips",
            "run",
            {"files": figures, "seed": asked.seed, "seconds": seconds},
            keep=not asked.unstored,
        )
    finally:
        shutil.rmtree(place, ignore_errors=True)
    sys.exit(bool(accepted))


if __name__ == "__main__":
    main()
