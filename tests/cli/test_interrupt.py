"""An interruption while the program loads its modules is one line and exit code 130."""

import subprocess
import sys

import pytest

SCRIPT = """
import os, signal, sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv.pop():
            os.kill(os.getpid(), signal.SIGINT)
        else:
            sys.argv.append(moment)

moment = sys.argv[-1]
signal.signal(signal.SIGINT, signal.default_int_handler)  # Ignored where tests run in the background.
sys.meta_path.insert(0, Interrupting())
from spectrope.__main__ import main
sys.exit(main())
"""


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("spectrope.core.progress", ["runs"]),
        ("spectrope.cli", ["runs"]),
        ("rich.console", ["runs"]),
        ("tyro", ["runs"]),
        ("spectrope.cli.commands.runs", ["runs"]),
        ("torch", ["train"]),
    ],
)
def test_an_interruption_while_modules_load_is_one_line(tmp_path, module, words):
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT, *words, module], capture_output=True, text=True, cwd=tmp_path
    )
    assert (ended.returncode, ended.stderr, ended.stdout) == (130, "spectrope: interrupted.\n", "")
    assert list(tmp_path.iterdir()) == []
