"""The program, `spectrope` and `python -m spectrope`: an interruption while it loads is one line, too."""

import gc
import sys

BAD_INPUT, INTERRUPTED = 2, 130
NEW_OBJECTS = 50_000  # Between searches for unreachable ones: what imports and rows make lives on.


def main() -> int:
    """Load the command line and run it; return the exit code."""
    gc.set_threshold(NEW_OBJECTS)
    try:
        from spectrope.core.progress import exit_on_interrupt

        with exit_on_interrupt():
            from spectrope.cli import main as run
        return run()
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("spectrope"):
            raise
        sys.stderr.write(
            f"spectrope: needs {error.name}, which is not installed; install the package with its "
            "dependencies. `python -m spectrope.verify` runs without it.\n"
        )
        return BAD_INPUT
    except KeyboardInterrupt:  # Before that handler is set, or just after the command.
        sys.stderr.write("spectrope: interrupted.\n")
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
