"""Isolation: commands without network or home, in another language and time zone, with the clock set back.

`python -m campaigns.isolation` carries commands out twice: as usual, and with everything taken away at once.
There is no network (`unshare -n`), no home that can be written, LANG is C, the time zone is Kathmandu's, and
the clock is set back by a year between the commands. Results must be the same. Secrets in the environment
must be in no file that was written.
"""

import argparse
import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from campaigns.commands import SMALL, TINY, checkpoint
from campaigns.faults import compiler, scratch
from campaigns.harness import store
from campaigns.server import digest

YEAR = 365 * 24 * 3600
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("train", *SMALL, *TINY),
    ("ablate", "RUN"),
    ("runs", "--check", "--json"),
    ("report", "RUN", "--out", "report.html"),
    ("audit", "model", "--length", "16", "--out", "audit.html"),
    ("grok", "--p", "11", "--steps", "6", "--set", "evaluate_every=3", "--runs", "grok-runs"),
    ("encodings",),
)
SECRETS = ("HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "OPENAI_API_KEY", "GITHUB_TOKEN", "DATABASE_PASSWORD")


def clock(place: Path) -> Path:
    """The library that shifts the clock."""
    cc, library = compiler(), place / "clock.so"
    if cc is None:
        raise SystemExit("the campaign of isolation needs a C compiler; install gcc or clang.")
    source = str(Path(__file__).with_name("clock.c"))
    subprocess.run([cc, "-shared", "-fPIC", "-o", str(library), source], check=True)
    return library


def without_network() -> list[str]:
    """The words before a command that take its network away; none where the system does not allow it."""
    for words in (["unshare", "-n"], ["unshare", "-rn"]):
        if shutil.which("unshare") and subprocess.run([*words, "true"], capture_output=True).returncode == 0:
            return words
    return []


def carried_out(
    folder: Path, words: Sequence[str], environment: Mapping[str, str], before: Sequence[str] = ()
) -> tuple[int, str]:
    """The exit code of a command and what it said on standard error."""
    if "RUN" in words:
        run = next(iter((folder / "runs").iterdir())).name
        words = [run if word == "RUN" else word for word in words]
    ended = subprocess.run(
        [*before, sys.executable, "-m", "spectrope", *words],
        cwd=folder,
        env=dict(environment),
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    return ended.returncode, ended.stderr


def isolated(place: Path, commands: Sequence[tuple[str, ...]]) -> dict[str, Any]:
    """Every command as usual and isolated, and what differs."""
    usual, alone = place / "usual", place / "alone"
    library, network = clock(place), without_network()
    planted = {name: secrets.token_hex(16) for name in SECRETS}
    python = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
    shared = {"PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1", **python}
    faults = []
    for folder in (usual, alone):
        (folder / "tmp").mkdir(parents=True)
        checkpoint(folder)
    for number, words in enumerate(commands):
        plain = {**shared, "HOME": str(place), "TMPDIR": str(usual / "tmp"), "LANG": "C.UTF-8"}
        bare = {
            **shared,
            **planted,
            "HOME": "/proc",  # Where nobody can write.
            "TMPDIR": str(alone / "tmp"),
            "LANG": "C",
            "LC_ALL": "C",
            "TZ": "Asia/Kathmandu",
            "LD_PRELOAD": str(library),
            "CLOCK_SHIFT": str(-YEAR * number),
        }
        expected, _ = carried_out(usual, words, plain)
        code, err = carried_out(alone, words, bare, network)
        if code != expected or "Traceback" in err:
            faults.append(f"{' '.join(words)}: exit code {code}, not {expected}: {err.strip()[-300:]}")
    for text in _differences(digest(usual), digest(alone)):
        faults.append(text)
    faults += _leaks(alone, planted)
    return {
        "commands": [" ".join(words) for words in commands],
        "network": "none" if network else "as it is: the system allows no namespace",
        "files_searched": sum(path.is_file() for path in alone.rglob("*")),
        "faults": faults,
    }


def _differences(usual: Mapping[str, str], alone: Mapping[str, str]) -> list[str]:
    names = sorted(usual.keys() | alone.keys())
    return [
        f"{name} differs"
        for name in names
        if not name.endswith(".html") and usual.get(name) != alone.get(name)
    ]


def _leaks(folder: Path, planted: Mapping[str, str]) -> list[str]:
    """Files that hold a secret of the environment."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [
        f"{path.relative_to(folder)} holds {name}"
        for path in files
        for name, value in planted.items()
        if value.encode() in path.read_bytes()
    ]


def main() -> None:
    """Run the campaign and store its figures."""
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    parser.add_argument("--first", type=int, default=len(COMMANDS), help="so many of the commands")
    parser.add_argument("--unstored", action="store_true", help="print the figures and keep no file")
    asked = parser.parse_args()
    place, begun = scratch(), time.monotonic()
    try:
        figures = isolated(place, COMMANDS[: asked.first])
        figures["seconds"] = round(time.monotonic() - begun)
        print(f"{len(figures['commands'])} commands, {len(figures['faults'])} faults")
        print("\n".join(figures["faults"]))
        store("isolation", "commands", figures, keep=not asked.unstored)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    sys.exit(bool(figures["faults"]))


if __name__ == "__main__":
    main()
