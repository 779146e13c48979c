"""The program, `spectrope` and `python -m spectrope`: an interruption while it loads is one line, too."""

import sys

INTERRUPTED = 130


def main() -> int:
    """Load the command line and run it; return the exit code."""
    try:
        from spectrope.core.progress import exit_on_interrupt

        with exit_on_interrupt():
            from spectrope.cli import main as run
        return run()
    except KeyboardInterrupt:  # Before that handler is set, or just after the command.
        sys.stderr.write("spectrope: interrupted.\n")
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
