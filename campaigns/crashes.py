"""Crash points: commands killed, or refused by the disk, at every distinct call that changes a file.

`python -m campaigns.crashes` carries out each command once and records its calls. For every distinct call
(its kind and its file) it takes the first, the second and the last time that it is reached, and there

- kills the process before the call, and within it (after half of a write);
- lets the power fail: calls that were not forced to disk are lost, all of them or a random part;
- lets the call fail, with EIO, ENOSPC, EACCES and ENOMEM, once and from then on.

Then the same command must go on, and leave the same bytes as an undisturbed one (but for times), each file
matching its digest. Trials come in a random order until the time is up. What goes wrong is listed in the
results.
"""

import argparse
import random
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

from campaigns.commands import COMMANDS, Command
from campaigns.disk import Call, Disk, restore, snapshot
from campaigns.faults import (
    ERRORS,
    FAIL_ON,
    FAIL_ONCE,
    KILL_BEFORE,
    KILL_WITHIN,
    Ended,
    Fault,
    Server,
    scratch,
)
from campaigns.harness import store

KILLED = -signal.SIGKILL
LOSSES = 2  # Random ones at each crash point, beside the loss of everything.
TOLD = 2  # Exit code of an error that is told in a line.
LOST = 4  # Exit code where an environment was lost.


@dataclass
class Tally:
    """What came of the trials of one kind.

    Args:
        tried: Trials.
        states: Of these, those whose state after the fault differed from all before.
        faults: What went wrong, a line each.
    """

    tried: int = 0
    states: int = 0
    faults: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Undisturbed:
    """A command without any fault: what lay there before, what it called, what it left."""

    before: dict[str, bytes | None]
    words: tuple[str, ...]
    calls: list[Call]
    digest: dict[str, str]


class Campaign:
    """The trials of one command.

    Args:
        server: Carries it out.
        place: A folder for its files.
        name: Name of the command in `COMMANDS`.
        draw: Chooses random losses.
    """

    def __init__(self, server: Server, place: Path, name: str, draw: random.Random) -> None:
        self.server, self.place, self.name, self.draw = server, place, name, draw
        self.command: Command = COMMANDS[name]
        self.tallies: dict[str, Tally] = {}
        self.seen: set[int] = set()
        self.number = 0
        self.whole = self._undisturbed()

    def _undisturbed(self) -> Undisturbed:
        folder = self.place / "whole"
        folder.mkdir(parents=True)
        for words in self.command.prepare(folder):
            ended = self.server.command(folder, words)
            assert ended.code == 0, ended.err
        runs = sorted((folder / "runs").iterdir()) if (folder / "runs").exists() else []
        words = tuple(runs[0].name if word == "RUN" else word for word in self.command.words)
        shutil.rmtree(folder / "tmp", ignore_errors=True)
        before = snapshot(folder)
        (folder / "tmp").mkdir()
        ended = self.server.command(folder, words, Fault(), tiny=self.command.tiny)
        assert ended.code in self.command.answers, (ended.code, ended.err)
        return Undisturbed({**before, "tmp": None}, words, ended.calls, self.server.digest(folder))

    def points(self) -> list[int]:
        """Numbers of the calls at which something happens: first, second and last of each kind and file."""
        by_place: dict[str, list[int]] = {}
        for number, call in enumerate(self.whole.calls, start=1):
            by_place.setdefault(call.place, []).append(number)
        return sorted({number for numbers in by_place.values() for number in (*numbers[:2], numbers[-1])})

    def kills(self, points: Sequence[int]) -> Iterator[tuple[str, Fault]]:
        """Both kinds of kill at every point, with the kind's name."""
        for number in points:
            yield "killed before a call", Fault(KILL_BEFORE, number)
            yield "killed within a call", Fault(KILL_WITHIN, number)

    def errors(self, points: Sequence[int]) -> Iterator[tuple[str, Fault]]:
        """Every kind of error at every point, with the kind's name."""
        for number in points:
            for name, error in ERRORS.items():
                yield f"{name} once", Fault(FAIL_ONCE, number, error)
                yield f"{name} from then on", Fault(FAIL_ON, number, error)

    def disturb(self, kind: str, fault: Fault) -> None:
        """Carry the command out with a fault, then go on without it, and compare."""
        folder = self._folder()
        ended = self.server.command(folder, self.whole.words, fault, tiny=self.command.tiny)
        tally = self.tallies.setdefault(kind, Tally())
        tally.tried += 1
        tally.states += self._is_new(folder)
        place = next((call.place for call in reversed(ended.calls)), "nothing")
        if wrong := _wrong_end(fault, ended, self.command):
            tally.faults.append(f"{place} ({fault.number}): {wrong}")
        self._go_on(folder, tally, f"{place} ({fault.number})")

    def losses(self, points: Sequence[int]) -> list[Callable[[], None]]:
        """A trial for every different state of the disk after a loss of power before each of some calls."""
        disk = Disk(self.whole.before, self.whole.calls)
        tally = self.tallies.setdefault("power lost", Tally())
        trials = []
        for number in [*points, len(disk.calls) + 1]:
            for files in disk.losses(number - 1, self.draw, LOSSES):
                if self._is_new_state(files):
                    trials.append(partial(self._lose, number, files, tally))
        return trials

    def _lose(self, number: int, files: dict[str, bytes | None], tally: Tally) -> None:
        tally.tried += 1
        tally.states += 1
        self._go_on(self._folder(files), tally, f"before call {number}")

    def _folder(self, files: dict[str, bytes | None] | None = None) -> Path:
        self.number += 1
        folder = self.place / str(self.number)
        restore(folder, self.whole.before if files is None else files)
        return folder

    def _is_new(self, folder: Path) -> bool:
        return self._is_new_state(snapshot(folder))

    def _is_new_state(self, files: dict[str, bytes | None]) -> bool:
        state = hash(frozenset(files.items()))
        is_new = state not in self.seen
        self.seen.add(state)
        return is_new

    def _go_on(self, folder: Path, tally: Tally, where: str) -> None:
        """The same command again, which must end as the undisturbed one."""
        words = self.command.resume or self.whole.words
        ended = self.server.command(folder, words, tiny=self.command.tiny)
        if ended.code not in self.command.answers:
            last = ended.err.strip().splitlines()[-1:] or [""]
            tally.faults.append(f"{where}: did not go on, {ended.code}: {last[0]}")
        elif (left := self.server.digest(folder)) != self.whole.digest:
            whole = self.whole.digest
            names = sorted(one for one in left.keys() | whole.keys() if left.get(one) != whole.get(one))
            tally.faults.append(f"{where}: other results in {', '.join(names)}")
        shutil.rmtree(folder)


def _wrong_end(fault: Fault, ended: Ended, command: Command) -> str:
    """What is wrong with the end of a command that met a fault, or nothing."""
    killing = fault.mode in (KILL_BEFORE, KILL_WITHIN)
    right = {*command.answers, TOLD, LOST} | ({KILLED} if killing else set())
    if ended.code == "hang":
        return "hangs"
    if ended.code not in right:
        return f"exit code {ended.code}: {ended.err.strip()[-200:]}"
    if "Traceback" in ended.err:
        return f"a traceback: {ended.err.strip()[-200:]}"
    return ""


def campaign(
    server: Server, place: Path, name: str, share: float, draw: random.Random, limit: float, most: int | None
) -> dict[str, Any]:
    """All trials of one command, or a random share of them.

    Args:
        server: Carries out commands.
        place: A folder for files.
        name: Name of the command in `COMMANDS`.
        share: Of crash points to try.
        draw: Chooses them.
        limit: Seconds after which no further trial begins; what is left out is counted.
        most: Trials at most, if there is a limit.
    """
    begun = time.monotonic()
    one = Campaign(server, place, name, draw)
    points = one.points()
    chosen = sorted(draw.sample(points, max(1, round(share * len(points)))))
    kinds = [
        [partial(one.disturb, *trial) for trial in one.kills(chosen)],
        one.losses(chosen) if one.command.in_order else [],
        [partial(one.disturb, *trial) for trial in one.errors(chosen)],
    ]
    for trials in kinds:
        draw.shuffle(trials)
    left = done = 0
    for trial in (trial for several in zip_longest(*kinds) for trial in several if trial is not None):
        if time.monotonic() - begun > limit or done == most:
            left += 1
        else:
            trial()
            done += 1
    return {
        "command": "spectrope " + " ".join(one.command.words),
        "calls": len(one.whole.calls),
        "distinct_calls": len({call.place for call in one.whole.calls}),
        "points": len(chosen),
        "left_out": left,
        "trials": {
            kind: {"tried": tally.tried, "distinct_states": tally.states, "faults": tally.faults}
            for kind, tally in sorted(one.tallies.items())
        },
        "seconds": round(time.monotonic() - begun),
    }


def main() -> None:
    """Run the campaign and store its figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--commands", nargs="+", default=list(COMMANDS), choices=list(COMMANDS))
    parser.add_argument("--share", type=float, default=1.0, help="of the crash points")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=float, default=3600.0, help="seconds for each command")
    parser.add_argument("--most", type=int, help="trials of each command")
    parser.add_argument("--unstored", action="store_true", help="print the figures and keep no file")
    asked = parser.parse_args()
    place, wrong = scratch(), 0
    (place / "server").mkdir()
    try:
        with Server(place / "server") as server:
            for name in asked.commands:
                draw = random.Random(asked.seed)
                folder = place / name.replace(" ", "-")
                found = campaign(server, folder, name, asked.share, draw, asked.limit, asked.most)
                faults = [text for kind in found["trials"].values() for text in kind["faults"]]
                tried = Counter({kind: one["tried"] for kind, one in found["trials"].items()})
                print(f"{name}: {tried.total()} trials at {found['points']} points, {len(faults)} faults")
                print("\n".join(faults[:20]), flush=True)
                wrong += len(faults)
                store(
                    "crashes",
                    name,
                    {"seed": asked.seed, "share": asked.share, **found},
                    keep=not asked.unstored,
                )
    finally:
        shutil.rmtree(place, ignore_errors=True)
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
