"""The command line: commands are found by their files, and only imported when they run."""

import io
import os
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from textwrap import shorten
from typing import Any

from spectrope.cli.catalogue import command
from spectrope.cli.catalogue import commands as all_commands  # `commands` becomes the package of that name.
from spectrope.cli.completion import completion
from spectrope.cli.help import ASKED, asked, help_of
from spectrope.cli.parsing import parse
from spectrope.console import complain, say, silent, with_options
from spectrope.core import (
    ConfigError,
    EnvironmentLostError,
    Interrupted,
    SpectropeError,
    SpectropeWarning,
    __version__,
    blamed,
    exit_on_interrupt,
    keep_freed_memory,
    loaded_files,
    reason,
)

BAD_INPUT, LOST, CRASHED, INTERRUPTED, BROKEN_PIPE = 2, 4, 70, 130, 141


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    If the `run` method of a command returns a number, it is the exit code; 1 always means the answer "no".
    Errors that a user can fix print one line and exit with 2, a lost worker or cluster with 4, an
    interruption with 130, a bug with 70, and a closed output pipe with 141.
    """
    keep_freed_memory()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # Names of files may be no UTF-8.
    with warnings.catch_warnings():
        warnings.simplefilter("always", SpectropeWarning)
        warnings.showwarning = _complain_of(warnings.showwarning)
        return _ended(list(sys.argv[1:] if arguments is None else arguments))


def _complain_of(others: Callable[..., None]) -> Callable[..., None]:
    """How warnings are shown: those of this package as a line, others as they were."""

    def shown(message: Warning | str, category: type[Warning], *place: Any) -> None:
        if issubclass(category, SpectropeWarning):
            complain(str(message))
        else:
            others(message, category, *place)

    return shown


RESUMED = ("train", "compare", "grok", "grok-shapes", "claims")  # Commands that go on with their runs.


@dataclass(frozen=True)
class Switches:
    """Options that every command accepts, anywhere among its arguments.

    Args:
        version: Print the version and exit.
        quiet: Print neither text nor progress, only errors and requested JSON.
        verbose: Report versions and timing on standard error, and print the traceback of errors.
    """

    version: bool = False
    quiet: bool = False
    verbose: bool = False

    @classmethod
    def of(cls, arguments: Sequence[str]) -> tuple["Switches", list[str]]:
        """The switches and the remaining arguments; arguments after `--` are not touched."""
        end = arguments.index("--") if "--" in arguments else len(arguments)
        names = {f"--{name}": name for name in vars(cls())}
        given = {names[word]: True for word in arguments[:end] if word in names}
        return cls(**given), [*(w for w in arguments[:end] if w not in names), *arguments[end:]]


def _ended(arguments: list[str]) -> int:
    switches, arguments = Switches.of(arguments)
    began = time.perf_counter()
    if switches.verbose:
        complain(f"version {__version__}, Python {sys.version.split()[0]}, from {os.path.dirname(__file__)}")
    try:
        with silent(when=switches.quiet):
            code = _run(arguments, switches)
            if sys.stdout is not None:
                sys.stdout.flush()  # Here a closed pipe is noticed, not while Python ends.
            return code
    except Interrupted as stop:
        complain(f"{stop} Run the same command to continue.")
        return INTERRUPTED
    except KeyboardInterrupt:
        complain(f"interrupted{_kept(arguments)}.")
        return INTERRUPTED
    except SpectropeError as error:
        complain(with_options(str(error)))
        if switches.verbose:
            traceback.print_exc()
        return LOST if isinstance(error, EnvironmentLostError) else BAD_INPUT
    except BrokenPipeError:
        for stream in (sys.stdout, sys.stderr):
            _abandon_if_broken(stream)
        return BROKEN_PIPE
    except Exception as error:
        if isinstance(error, MemoryError) or "not enough memory" in str(error):
            complain(f"not enough memory: {reason(error)}. Ask for less at once, such as fewer examples.")
            return BAD_INPUT
        if told := blamed(error, loaded_files()):
            complain(f"{told}.")
            if switches.verbose:
                traceback.print_exc()
            return BAD_INPUT
        traceback.print_exc()
        return CRASHED
    finally:
        if switches.verbose:
            complain(f"took {time.perf_counter() - began:.1f} s")


def _kept(arguments: list[str]) -> str:
    """What is kept of an interrupted command, in words; only those that train go on."""
    if not arguments or arguments[0] not in RESUMED:
        return ""
    return "; finished runs are kept, and the same command resumes unfinished ones"


def _abandon_if_broken(stream: Any) -> None:
    """Send the rest of a stream nowhere if its pipe is closed, so that Python can end without a complaint."""
    if stream is None:
        return
    try:
        stream.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _run(arguments: list[str], switches: Switches) -> int:
    if switches.version or arguments == ["version"]:
        say(f"spectrope {__version__}")
        return 0
    if arguments[:1] == ["--completion"]:
        if len(arguments) > 2:
            raise ConfigError(f"--completion takes the name of one shell; got {' '.join(arguments[1:])}.")
        print(completion(*arguments[1:]))
        return 0
    if arguments[:1] == ["help"]:
        arguments = [*arguments[1:], "--help"]
    if not arguments or arguments[0] in ASKED:
        _show_help(everything=bool(asked(arguments)))
        return 0 if arguments else BAD_INPUT
    chosen = command(arguments[0])
    if (everything := asked(arguments[1:])) is not None:
        say(help_of(chosen, arguments[1:], everything=everything))
        return 0
    with exit_on_interrupt():
        parsed = parse(chosen, arguments[1:])
    action = getattr(parsed, "action", parsed)
    with silent(when=getattr(action, "json", False)):
        return parsed.run() or 0


def _show_help(*, everything: bool) -> None:
    """The help of the program; without the rare commands it fits a terminal of 24 lines of 80 columns."""
    say("usage: spectrope COMMAND [OPTIONS] (positional encodings in Transformers)")
    listed = [one for one in all_commands().values() if everything or one.listed]
    width = max(len(one.name) for one in listed)
    for group, members in groupby(listed, key=lambda one: one.group):
        say(group)
        for one in members:
            say(f"  {one.name:<{width}}  {shorten(one.line, 76 - width, placeholder=' ...')}")
    hidden = len(all_commands()) - len(listed)
    rest = f"`spectrope --help-all` lists {hidden} more commands. " if hidden else ""
    say(f"{rest}All take --help, --quiet.")
