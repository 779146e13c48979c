"""Crash points: commands killed, or refused by the disk, at every distinct call that changes a file.

`python -m campaigns.crashes` carries out each command once and records its calls. For every distinct call
(its kind and its file) it takes the first, the second and the last time that it is reached, and there

- kills the process before the call, and within it (after half of a write);
- lets the power fail: calls that were not forced to disk are lost, all of them or a random part;
- lets the call fail, with EIO, ENOSPC, EACCES and ENOMEM, once and from then on.

Where a command has several workers, their calls come in another order each time, and a fault at the n-th
call hits whichever comes n-th. Then the same command must go on, and leave the same bytes as an undisturbed
one (but for times), each file matching its digest. Trials come in a random order until the time is up; the
same command goes on with those that are left, as long as the code stays the same. What goes wrong is listed
in the results.
"""

import argparse
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
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
from campaigns.journal import JOURNALS, Journal, Key, Outcome, journal_of

KILLED = -signal.SIGKILL
LOSSES = 2  # Random ones at each crash point, beside the loss of everything.
TOLD = 2  # Exit code of an error that is told in a line.
LOST = 4  # Exit code where an environment was lost.


@dataclass(frozen=True)
class Trial:
    """Something to do to a command at one of its calls.

    Args:
        key: What tells it from the others of its command; see `Outcome`.
        carry_out: Does it, and returns whether the state was new, and the faults.
    """

    key: Key
    carry_out: Callable[[], tuple[bool, list[str]]]

    def __call__(self) -> Outcome:
        begun = time.monotonic()
        new, faults = self.carry_out()
        return Outcome(*self.key, new, tuple(faults), round(time.monotonic() - begun, 2))


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

    def kills(self, points: Sequence[int]) -> Iterator[Trial]:
        """Both kinds of kill at every point."""
        for number in points:
            yield self._disturbance("killed before a call", Fault(KILL_BEFORE, number))
            yield self._disturbance("killed within a call", Fault(KILL_WITHIN, number))

    def errors(self, points: Sequence[int]) -> Iterator[Trial]:
        """Every kind of error at every point."""
        for number in points:
            for name, error in ERRORS.items():
                yield self._disturbance(f"{name} once", Fault(FAIL_ONCE, number, error))
                yield self._disturbance(f"{name} from then on", Fault(FAIL_ON, number, error))

    def losses(self, points: Sequence[int]) -> Iterator[Trial]:
        """A trial for every different state of the disk after a loss of power before each of some calls."""
        disk = Disk(self.whole.before, self.whole.calls)
        for number in [*points, len(disk.calls) + 1]:
            for which, files in enumerate(disk.losses(number - 1, self.draw, LOSSES)):
                if self._is_new_state(files):
                    yield Trial(("power lost", number, which), partial(self._lose, number, files))

    def _disturbance(self, kind: str, fault: Fault) -> Trial:
        return Trial((kind, fault.number, 0), partial(self._disturb, fault))

    def _disturb(self, fault: Fault) -> tuple[bool, list[str]]:
        """Carry the command out with a fault, then go on without it, and compare."""
        folder = self._folder()
        ended = self.server.command(folder, self.whole.words, fault, tiny=self.command.tiny)
        new = self._is_new_state(snapshot(folder))
        place = next((call.place for call in reversed(ended.calls)), "nothing")
        where = f"{place} ({fault.number})"
        wrong = _wrong_end(fault, ended, self.command)
        return new, [*([f"{where}: {wrong}"] if wrong else []), *self._go_on(folder, where)]

    def _lose(self, number: int, files: dict[str, bytes | None]) -> tuple[bool, list[str]]:
        return True, self._go_on(self._folder(files), f"before call {number}")

    def _folder(self, files: dict[str, bytes | None] | None = None) -> Path:
        self.number += 1
        folder = self.place / str(self.number)
        restore(folder, self.whole.before if files is None else files)
        return folder

    def _is_new_state(self, files: dict[str, bytes | None]) -> bool:
        state = hash(frozenset(files.items()))
        is_new = state not in self.seen
        self.seen.add(state)
        return is_new

    def _go_on(self, folder: Path, where: str) -> list[str]:
        """Run the same command again; what is wrong unless it ends as the undisturbed one."""
        words = self.command.resume or self.whole.words
        ended = self.server.command(folder, words, tiny=self.command.tiny)
        left, whole = self.server.digest(folder), self.whole.digest
        shutil.rmtree(folder)
        if ended.code not in self.command.answers:
            last = ended.err.strip().splitlines()[-1:] or [""]
            return [f"{where}: did not go on, {ended.code}: {last[0]}"]
        names = sorted(one for one in left.keys() | whole.keys() if left.get(one) != whole.get(one))
        return [f"{where}: other results in {', '.join(names)}"] if names else []


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


def campaign(one: Campaign, share: float, journal: Journal, limit: float, most: int | None) -> dict[str, Any]:
    """Try what is left of the trials of one command, or of a random share of them.

    Args:
        one: The command.
        share: Of crash points to try.
        journal: Holds the trials that are done already, and takes the others.
        limit: Seconds after which no further trial begins; what is left out is counted.
        most: Trials at most, if there is a limit.
    """
    begun = time.monotonic()
    points = one.points()
    chosen = sorted(one.draw.sample(points, max(1, round(share * len(points)))))
    kinds = [list(kind(chosen)) for kind in (one.kills, one.losses, one.errors)]
    for trials in kinds:
        one.draw.shuffle(trials)
    mixed = (trial for several in zip_longest(*kinds) for trial in several if trial is not None)
    undone = [trial for trial in mixed if trial.key not in journal.outcomes]
    for trial in undone[:most]:
        if time.monotonic() - begun > limit:
            break
        journal.add(trial())
    return {
        "command": "spectrope " + " ".join(one.command.words),
        "calls": len(one.whole.calls),
        "distinct_calls": len({call.place for call in one.whole.calls}),
        "points": len(chosen),
        "left_out": sum(trial.key not in journal.outcomes for trial in undone),
        "trials": _by_kind(journal),
        "seconds": round(sum(outcome.seconds for outcome in journal.outcomes.values())),
    }


def _by_kind(journal: Journal) -> dict[str, dict[str, Any]]:
    """Counts and faults of the trials of each kind."""
    found: dict[str, dict[str, Any]] = {}
    for outcome in sorted(journal.outcomes.values(), key=lambda one: one.key):
        kind = found.setdefault(outcome.kind, {"tried": 0, "distinct_states": 0, "faults": []})
        kind["tried"] += 1
        kind["distinct_states"] += outcome.new
        kind["faults"] += outcome.faults
    return found


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
                one = Campaign(server, place / name.replace(" ", "-"), name, random.Random(asked.seed))
                kept = place if asked.unstored else JOURNALS
                journal = journal_of("crashes", name, f"{asked.seed} {asked.share}", kept)
                found = campaign(one, asked.share, journal, asked.limit, asked.most)
                faults = [text for kind in found["trials"].values() for text in kind["faults"]]
                tried = f"{len(journal.outcomes)} trials at {found['points']} points"
                print(f"{name}: {tried}, {found['left_out']} left, {len(faults)} faults")
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
