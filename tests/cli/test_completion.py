"""Completion: scripts that shells accept, and what they offer."""

import shutil
import subprocess

import pytest
from tests.cli.typed import refused

from spectrope.cli import main
from spectrope.cli.completion import completion

OFFERED = [
    ("spectrope co", 1, "compare conform"),
    ("spectrope claims ru", 2, "run"),
    ("spectrope claims run --en", 3, "--engine"),
    ("spectrope compare --engine ", 3, "local ray"),
    ("spectrope audit --serv", 2, "--serving-modes"),
]


@pytest.mark.parametrize(("typed", "place", "offered"), OFFERED)
def test_bash_completes_commands_options_and_values(typed, place, offered):
    words = " ".join(f"'{word}'" for word in typed.split(" "))
    ask = f'{completion()}\nCOMP_WORDS=({words}); COMP_CWORD={place}; _spectrope; echo "${{COMPREPLY[@]}}"'
    ended = subprocess.run(["bash", "-c", ask], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == offered


def test_fish_gets_a_line_for_each_option(capsys):
    assert main(("--completion", "fish")) == 0
    out = capsys.readouterr().out
    assert "complete -c spectrope -n '__fish_seen_subcommand_from compare' -l encodings -r" in out
    if fish := shutil.which("fish"):
        subprocess.run([fish, "--no-execute", "-c", out], check=True)


def test_another_shell_is_refused(capsys):
    assert "unknown shell 'tcsh'" in refused(capsys, "--completion", "tcsh")
    assert "--completion takes the name of one shell; got bash x." in refused(
        capsys, "--completion", "bash", "x"
    )
