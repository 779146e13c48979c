"""`spectrope check`: what a checkpoint applies now, against its lock."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from spectrope.checkpoints.commands.audit import EXIT_CODES
from spectrope.checkpoints.lock import FILE, CheckedLock, read_lock
from spectrope.checkpoints.lock.opening import checked, source_of
from spectrope.checkpoints.lock.reports import (
    junit,
    junit_of_failure,
    sarif,
    sarif_of_failure,
    write_report,
)
from spectrope.checkpoints.options import Checkpoints
from spectrope.console import JsonOption, counted, print_json, say, show, with_options
from spectrope.core import ConfigError, SpectropeError
from spectrope.store import check_place


@dataclass(frozen=True, kw_only=True)
class Check(Checkpoints):
    """Compare the encodings that a checkpoint applies with its lock file.

    The exit code is 0 if nothing changed, 1 if something did, and 3 if nothing changed but something could
    not be compared: kernels of heads because the weights differ, or layers that the lock lost.

    Examples:
    $ spectrope check
    $ spectrope check spectrope.lock --model path/to/converted --junit junit.xml
    """

    lock: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(name="lock", help="Lock file.")] = Path(FILE)
    model: Annotated[
        str | None, tyro.conf.arg(help="Checkpoint to check (default: the one named in the lock file).")
    ] = None
    json: JsonOption = False
    junit: Annotated[Path | None, tyro.conf.arg(help="Also write a test report in JUnit format.")] = None
    sarif: Annotated[Path | None, tyro.conf.arg(help="Also write the differences in SARIF format.")] = None

    def run(self) -> int:
        """Measure, print what changed, and say by the exit code whether anything did."""
        for path in (one for one in (self.junit, self.sarif) if one is not None):
            check_place(path)
        if self.junit is not None and self.junit == self.sarif:
            raise ConfigError(f"--junit and --sarif both name {self.junit}; give each report its own file.")
        try:
            result = self._compared()
        except SpectropeError as error:
            told = with_options(str(error))
            if self.junit is not None:
                write_report(junit_of_failure(told, type(error)), self.junit)
            if self.sarif is not None:
                write_report(sarif_of_failure(told), self.sarif)
            raise
        if self.junit is not None:
            write_report(junit(result), self.junit)
        if self.sarif is not None:
            write_report(sarif(result, self.lock), self.sarif)
        if self.json:
            print_json(result.to_dict())
        else:
            show(result)
            say(_closing(result))
        return EXIT_CODES[_outcome(result)]

    def _compared(self) -> CheckedLock:
        """The lock, and what the checkpoint applies now."""
        held = read_lock(self.lock)
        source = self.model or source_of(held, self.lock)
        model = self.open(source, held.layers_taken or None, part=held.part or None)
        with counted("measuring") as watch:
            return checked(held, model, watch)


def _outcome(result: CheckedLock) -> str:
    if not result.ok:
        return "differs"
    return "matches" if result.whole else "incomplete"


def _closing(result: CheckedLock) -> str:
    if not result.ok:
        return "The encoding changed. If this was intended, write a new lock with `spectrope lock`."
    if not result.whole:
        return "Nothing changed in what was compared."
    return "Nothing changed in what the lock holds." if result.uncovered else "Nothing changed."
