"""The command line: thin shells over the library, one file per command."""

import os
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated

import tyro
from tyro.conf import subcommand

from spectrope.checkpoints.commands.audit import Audit
from spectrope.checkpoints.commands.diff import Diff
from spectrope.cli.commands.ablate import Ablate
from spectrope.cli.commands.attention import Attention
from spectrope.cli.commands.compare import Compare
from spectrope.cli.commands.encodings import Encodings
from spectrope.cli.commands.report import Report
from spectrope.cli.commands.runs import Runs
from spectrope.cli.commands.spectrum import Spectrum
from spectrope.cli.commands.train import Train
from spectrope.console.show import complain
from spectrope.core.errors import SpectropeError
from spectrope.core.interrupt import Interrupted
from spectrope.core.memory import keep_freed_memory
from spectrope.encodings.foreign import blamed, loaded_files
from spectrope.grokking.commands.grok import Grok
from spectrope.grokking.commands.grok_shapes import GrokShapes
from spectrope.grokking.commands.grok_theory import GrokTheory
from spectrope.study.commands.claims import Claims

Command = (
    Annotated[Compare, subcommand("compare")]
    | Annotated[Train, subcommand("train")]
    | Annotated[Ablate, subcommand("ablate")]
    | Annotated[Audit, subcommand("audit")]
    | Annotated[Diff, subcommand("diff")]
    | Annotated[Spectrum, subcommand("spectrum")]
    | Annotated[Attention, subcommand("attention")]
    | Annotated[Grok, subcommand("grok")]
    | Annotated[GrokShapes, subcommand("grok-shapes")]
    | Annotated[GrokTheory, subcommand("grok-theory")]
    | Annotated[Claims, subcommand("claims")]
    | Annotated[Report, subcommand("report")]
    | Annotated[Runs, subcommand("runs")]
    | Annotated[Encodings, subcommand("encodings")]
)

BAD_INPUT, CRASHED, INTERRUPTED, BROKEN_PIPE = 2, 70, 130, 141


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; a user's mistake is one line and exit code 2, an interruption 130.

    A command whose `run` returns a number ends with it, so that 1 is an answer of `audit` and `diff` alone: a
    fault of the program ends with 70, and one whose output nobody reads any more with 141.
    """
    command = tyro.cli(
        Command,  # pyright: ignore[reportArgumentType]
        prog="spectrope",
        description="A spectroscope for positional encodings in Transformers.",
        args=arguments,
        config=(tyro.conf.OmitArgPrefixes, tyro.conf.FlagCreatePairsOff),
    )
    keep_freed_memory()
    try:
        code = command.run()
    except Interrupted as stop:
        complain(f"{stop} The same command goes on from there.")
        return INTERRUPTED
    except KeyboardInterrupt:
        complain("interrupted; finished runs are kept, and the same command goes on.")
        return INTERRUPTED
    except SpectropeError as error:
        complain(str(error))
        return BAD_INPUT
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except Exception as error:
        if told := blamed(error, loaded_files()):
            complain(f"{told}.")
            return BAD_INPUT
        traceback.print_exc()
        return CRASHED
    return code or 0
