"""What tests type, and what a mistake prints."""

from spectrope.cli import BAD_INPUT, main

SMALL = ("--epochs", "1", "--examples", "60")


def refused(capsys, *arguments: str) -> str:
    """The one line that a mistaken command prints."""
    assert main(arguments) == BAD_INPUT
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert err.startswith("spectrope: ")
    return err
