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
    ("spectrope train --encoding kerple", 3, "kerple_log kerple_power"),
    ("spectrope compare --tasks dist", 3, "distance"),
    ("spectrope audit a-fold", 2, "a-folder"),
    ("spectrope audit ", 2, "a-folder"),
    ("spectrope train --runs ", 3, "a-folder"),
]


@pytest.mark.parametrize(("typed", "place", "offered"), OFFERED)
@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_bash_completes_commands_options_values_and_files(shell, typed, place, offered, tmp_path):
    (tmp_path / "a-folder").mkdir()
    script = completion(shell).removeprefix("autoload -U +X bashcompinit && bashcompinit")
    words = " ".join(f"'{word}'" for word in typed.split(" "))
    ask = f'{script}\nCOMP_WORDS=({words}); COMP_CWORD={place}; _spectrope; echo "${{COMPREPLY[@]}}"'
    ended = subprocess.run(["bash", "-c", ask], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert ended.stdout.strip() == offered


def test_fish_gets_a_line_for_each_option(capsys):
    assert main(("--completion", "fish")) == 0
    out = capsys.readouterr().out
    assert "complete -c spectrope -n '__fish_seen_subcommand_from compare' -l encodings -x -a 'alibi " in out
    assert "complete -c spectrope -n '__fish_seen_subcommand_from compare' -l rates -r" in out
    if fish := shutil.which("fish"):
        subprocess.run([fish, "--no-execute", "-c", out], check=True)


def test_another_shell_is_refused(capsys):
    assert "unknown shell 'tcsh'" in refused(capsys, "--completion", "tcsh")
    assert "--completion takes the name of one shell; got bash x." in refused(
        capsys, "--completion", "bash", "x"
    )
