"""Fuzzing of every reader: files and arguments that are damaged in ways that Hypothesis chooses.

`python -m campaigns.fuzz` damages what each reader reads, with digests and checksums that fit the damage, so
that it is read on. A reader may accept or refuse; a traceback, more than ten seconds, or a score out of its
range in what it accepts is a fault. Damages that found a fault are kept in `campaigns/corpus/`, and tried
first.
"""

import argparse
import json
import shutil
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from campaigns.damages import DAMAGES, Damage
from campaigns.faults import scratch
from campaigns.harness import store
from campaigns.readers import Readers
from hypothesis import HealthCheck, given, seed, settings

from spectrope.core import SpectropeError

CORPUS = Path(__file__).parent / "corpus"
LIMIT = 10  # Processor seconds that a reader may take.
LONGEST = 120  # Seconds, on a machine that is busy with other work.
CASES = {  # Of a whole campaign.
    "configuration": 2500,
    "manifest": 2500,
    "row": 1500,
    "rows as bytes": 1500,
    "table": 400,
    "table as bytes": 400,
    "tensors as bytes": 300,
    "checkpoint": 200,
    "Hugging Face configuration": 120,
    "recipe": 800,
    "costs": 500,
    "own file": 200,
    "command line": 200,
}
SLOW = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example)


class HangError(Exception):
    """A reader has taken too long."""


@dataclass
class Found:
    """What came of the cases of one reader."""

    cases: int = 0
    refused: int = 0
    accepted: int = 0
    slowest: float = 0.0
    faults: dict[str, list[Damage]] = field(default_factory=dict)

    def try_one(self, read: Callable[[list[Damage]], None], damages: list[Damage]) -> None:
        """Try one case, and keep the first damage of each kind of fault."""
        self.cases += 1
        begun = time.process_time()
        for number in (signal.SIGALRM, signal.SIGPROF):
            signal.signal(number, _hang)
        signal.alarm(LONGEST)
        signal.setitimer(signal.ITIMER_PROF, LIMIT)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                read(damages)
            self.accepted += 1
        except SpectropeError:
            self.refused += 1
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            self.faults.setdefault(_signature(error), damages)
        finally:
            signal.alarm(0)
            signal.setitimer(signal.ITIMER_PROF, 0)
            self.slowest = max(self.slowest, time.process_time() - begun)


def _hang(number: int, frame: object) -> None:
    raise HangError(f"more than {LIMIT} s")


def _signature(error: BaseException) -> str:
    """The kind of an error, and the last line of the program that raised it."""
    frames = [one for one in traceback.extract_tb(error.__traceback__) if "spectrope" in one.filename]
    place = f" at {Path(frames[-1].filename).name}:{frames[-1].name}" if frames else ""
    text = str(error).splitlines()[0][:160] if str(error) else ""
    return f"{type(error).__name__}{place}: {text}" if not frames else f"{type(error).__name__}{place}"


def corpus(name: str) -> list[list[Damage]]:
    """Damages that once found a fault."""
    path = CORPUS / f"{name.replace(' ', '-').lower()}.json"
    return [[Damage(**one) for one in case] for case in json.loads(path.read_text())] if path.exists() else []


def keep(name: str, cases: list[list[Damage]]) -> None:
    """Add damages to the corpus."""
    CORPUS.mkdir(exist_ok=True)
    path = CORPUS / f"{name.replace(' ', '-').lower()}.json"
    known = [[asdict(one) for one in case] for case in corpus(name)]
    known += [case for one in cases if (case := [asdict(damage) for damage in one]) not in known]
    path.write_text(json.dumps(known, indent=1) + "\n")


def fuzz(name: str, read: Callable[[list[Damage]], None], cases: int, number: int) -> Found:
    """Try the corpus of a reader and so many new cases."""
    found = Found()
    for damages in corpus(name):
        found.try_one(read, damages)

    @seed(number)
    @settings(max_examples=cases, database=None, deadline=None, suppress_health_check=SLOW)
    @given(DAMAGES)
    def each(damages: list[Damage]) -> None:
        found.try_one(read, damages)

    each()
    return found


def main() -> None:
    """Run the campaign and store its figures."""
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    parser.add_argument("--readers", nargs="+", default=list(CASES), choices=list(CASES))
    parser.add_argument("--share", type=float, default=1.0, help="of the cases")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--unstored", action="store_true", help="keep neither figures nor corpus")
    asked = parser.parse_args()
    place, faults = scratch(), 0
    try:
        readers = Readers(place).all()
        for name in asked.readers:
            begun = time.monotonic()
            found = fuzz(name, readers[name], max(1, round(asked.share * CASES[name])), asked.seed)
            print(
                f"{name}: {found.cases} cases, {found.accepted} accepted, {len(found.faults)} faults",
                flush=True,
            )
            for fault, damages in found.faults.items():
                print(f"  {fault}  {damages}", flush=True)
            if not asked.unstored and found.faults:
                keep(name, list(found.faults.values()))
            figures = {
                "seed": asked.seed,
                "cases": found.cases,
                "accepted": found.accepted,
                "refused": found.refused,
                "slowest_cpu_seconds": round(found.slowest, 2),
                "faults": list(found.faults),
                "seconds": round(time.monotonic() - begun),
            }
            store("fuzz", name, figures, keep=not asked.unstored)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
