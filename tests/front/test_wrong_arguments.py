"""Wrong arguments in Python: one line in Python's words, as an error that can be caught.

The calls run in a process of their own, since the type checks of the tests would come before ours.
"""

import subprocess
import sys

import pytest

CALLS = {
    "sp.experiment('distance', 'rope', epochs='2')": "epochs must be a whole number; got '2'.",
    "sp.experiment('distance', 'rope', seed='0')": "seed must be a whole number; got '0'.",
    "sp.experiment('distance', 'rope', n_examples=2.5)": "n_examples must be a whole number; got 2.5.",
    "sp.experiment('distance', 7)": "encoding must be a name, a class or a configuration; got 7.",
    "sp.experiment(42, 'rope')": "the name of a task must be text; got 42.",
    "sp.experiment('distances', 'rope')": "unknown task 'distances'; did you mean distance?",
    "sp.train(3)": "encoding must be a name, a class or a configuration; got 3.",
    "sp.execute('x')": "every entry of a plan must be an experiment or a job; got 'x'.",
    "sp.execute([3])": "every entry of a plan must be an experiment or a job; got 3.",
    "sp.execute(None)": "a plan must be a list of experiments or jobs; got None.",
    "sp.compare(3)": "encoding must be a name, a class or a configuration; got 3.",
    "sp.compare(['rope'], ['distance'], seeds='a')": "seed must be a whole number; got 'a'.",
    "sp.report(3, 'report.html')": "runs must be a run, several, or a folder of them; got 3.",
    "sp.report([3], 'report.html')": "every one of the runs must be a run, as sp.runs and sp.train return",
    "sp.figure(3, 'heatmap')": "runs must be a run, several, or a folder of them; got 3.",
    "sp.table(3)": "runs must be a run, several, or a folder of them; got 3.",
    "sp.runs(3)": "folder must be the path of a folder; got 3.",
    "sp.check_runs(3)": "folder must be the path of a folder; got 3.",
    "sp.load_run(3)": "path must be the path of a run folder; got 3.",
    "sp.load_encoding(3)": "the name of an encoding must be text; got 3.",
    "sp.ENCODINGS[3]": "the name of an encoding must be text; got 3.",
    "sp.encodings.RoPE(64)": "RoPE takes a RoPE.Config, or its fields by name; got 64.",
    "sp.tasks.Counting(5)": "Counting takes a Counting.Config, or its fields by name; got 5.",
    "sp.audit(42)": "audit takes a Hugging Face model, a module of your own in sp.OwnModel, or the folder",
    "sp.diff('a', 'b')": "diff compares two audits",
}
SCRIPT = """
import sys
import spectrope as sp
from spectrope.core.errors import SpectropeError
for call in sys.stdin.read().splitlines():
    try:
        eval(call)
        print("no error")
    except SpectropeError as error:
        print(str(error).replace(chr(10), " | "))
    except Exception as error:
        print(type(error).__name__, str(error).splitlines()[0])
"""


@pytest.fixture(scope="module")
def told():
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], input="\n".join(CALLS), capture_output=True, text=True, check=True
    )
    return dict(zip(CALLS, done.stdout.splitlines(), strict=True))


@pytest.mark.parametrize("call", CALLS)
def test_a_wrong_argument_gets_one_line(told, call):
    assert told[call].startswith(CALLS[call])
    assert " | " not in told[call]
    assert "--" not in told[call]
