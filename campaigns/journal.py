"""Keeps what came of each trial of a campaign, so that one that was stopped goes on where it was."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
JOURNALS = ROOT / "build" / "campaigns"

Key = tuple[str, int, int]  # Kind, number and draw of an `Outcome`.


@dataclass(frozen=True)
class Outcome:
    """What came of one trial.

    Args:
        kind: What was done to the command.
        number: Of the call at which it was done, from 1.
        draw: Which of several random states it was, from 0.
        new: Whether the state after the fault differed from all before it in the same process.
        faults: What went wrong, a line each.
        seconds: How long it took.
    """

    kind: str
    number: int
    draw: int
    new: bool
    faults: tuple[str, ...]
    seconds: float

    @property
    def key(self) -> Key:
        """What tells the trial from the others of its command."""
        return self.kind, self.number, self.draw


class Journal:
    """Outcomes in a file, a line each; a line that was cut off is left out.

    Args:
        path: The file; what it holds already counts as done.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self.outcomes = {one.key: one for one in _read(path)}
        if path.exists() and not path.read_text().endswith("\n"):
            self._append("\n")

    def add(self, outcome: Outcome) -> None:
        """Keep one outcome."""
        self.outcomes[outcome.key] = outcome
        self._append(json.dumps(asdict(outcome)) + "\n")

    def _append(self, text: str) -> None:
        with self.path.open("a") as file:
            file.write(text)


def journal_of(campaign: str, part: str, asked: str, folder: Path = JOURNALS) -> Journal:
    """The journal of one part of a campaign, for the code as it is: other code begins another.

    Args:
        campaign: Its name.
        part: Name of the part.
        asked: What decides which trials there are, as text.
        folder: Where journals lie.
    """
    digest = hashlib.sha256(asked.encode())
    for path in sorted([*(ROOT / "src").rglob("*.py"), *(ROOT / "campaigns").glob("*.[pc]*")]):
        if path.is_file():
            digest.update(path.read_bytes())
    return Journal(folder / f"{campaign}-{part.replace(' ', '-')}-{digest.hexdigest()[:12]}.jsonl")


def _read(path: Path) -> Iterator[Outcome]:
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            fields = json.loads(line)
        except ValueError:
            continue
        yield Outcome(**{**fields, "faults": tuple(fields["faults"])})
