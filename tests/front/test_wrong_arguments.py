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
    "sp.experiment('distances', 'rope')": "unknown task 'distances'; did you mean distance or grid_distance?",
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
    "sp.audit(run)": "audit takes a Hugging Face model, a module of your own in sp.OwnModel, or the folder",
    "sp.experiment('distance', 'rope', seed=None)": "seed must be a whole number; got None.",
    "sp.experiment('distance', 'rope', epochs=0)": "TrainingConfig.epochs must be at least 1; got 0.",
    "sp.experiment('distance', 'rope', scale=3)": "scale must be text; got 3.",
    "sp.experiment('distance', 'rope', condition=3)": "the name of a condition must be text; got 3.",
    "sp.experiment('distance', 'rope', attention='mla')": "attention must be a configuration, such as",
    "sp.experiment('distance', ['rope'])": "encoding must be a name, a class or a configuration; got ['rop",
    "sp.experiment('distance', int)": "int is not registered as encoding; declare it as `class int(Encoding",
    "sp.experiment('rope', 'distance')": "task 'rope' is an encoding; write experiment(task, encoding).",
    "one.with_(learning_rat=1)": "Experiment has no field 'learning_rat'; did you mean learning_rate or en",
    "one.with_(learning_rate='fast')": "TrainingConfig.learning_rate: Input should be a valid number",
    "one.with_(max_length=3)": "'max_length' could be 'task.max_length' or 'model.max_length'; give the wh",
    "sp.train('rope', root=3)": "root must be the path of a folder; got 3.",
    "sp.train('rope', device='gpu')": "device must be auto, cpu, cuda; got 'gpu'.",
    "sp.train('rope', settings=3)": "settings must be fields by name, such as {'learning_rate': 1e-3}; got",
    "sp.train('rope', settings={3: 1})": "the name of a setting must be text; got 3.",
    "sp.train('rope', watch=3)": "watch must be a function of the progress, such as sp.unwatched; got 3.",
    "sp.train('rope', probe=3)": "probe must be a probe, such as LearningProbe(every=100); got 3.",
    "sp.execute([one], workers=0)": "workers must be at least 1; got 0.",
    "sp.execute([one], workers='2')": "workers must be a whole number; got '2'.",
    "sp.execute([one], root=None)": "root must be the path of a folder; got None.",
    "sp.compare('rope', 'distance', seeds=None)": "seed must be a whole number; got None.",
    "sp.compare({'rope': 1}, 'distance')": "encoding must be a name, a class or a configuration; got {'rop",
    "sp.compare('rope', 'distance', rates=3)": "rates must be multiples of the scale's learning rate, such",
    "sp.compare('rope', 'distance', rates=['a'])": "every one of the rates must be a number; got 'a'.",
    "sp.ablate(None)": "a target must be a run, a model, or the name of a run or a checkpoint; got",
    "sp.ablate(sp.compare('nope', 'distance', **small))": "a target must be a run, a model, or the name of",
    "sp.ablate(run, examples=0)": "examples must be at least 1; got 0.",
    "sp.ablate(run, examples='10')": "examples must be a whole number; got '10'.",
    "sp.ablate(run, method='exact')": "method must be Exact(), Adaptive(), Cumulative() or Screen() of sp.",
    "sp.ablate(run, layers=2)": "layers must be a slice, such as slice(0, 4); got 2.",
    "sp.ablate(run, fill=3)": "the name of a fill must be text; got 3.",
    "sp.ablated(run, [(0, 0)]).__enter__()": "a model must be a torch.nn.Module; got Run. sp.load_model op",
    "sp.ablated(decoder, 3).__enter__()": "heads must be pairs of layer and head, such as [(0, 3)]; got 3.",
    "sp.ablated(decoder, 'a').__enter__()": "heads must be pairs of layer and head, such as [(0, 3)]; got",
    "sp.ablated(decoder, [(0, 99)]).__enter__()": "HeadAblation.head must be between 0 and 7; got 99.",
    "sp.spectrum(run, examples='3')": "examples must be a whole number; got '3'.",
    "sp.spectrum(run, quantities=3)": "quantities must be a name or several; got 3.",
    "sp.spectrum('alibi', heads=2.5)": "heads must be a whole number; got 2.5.",
    "sp.spectrum('alibbi')": "'alibbi' is neither a run in runs nor a checkpoint (a folder, or a",
    "sp.spectrum(3)": "a target must be a run, a model, or the name of a run or a checkpoint; got",
    "sp.runs(None)": "folder must be the path of a folder; got None.",
    "sp.runs('nowhere')": "nowhere is not a folder; compare and train make one.",
    "sp.table([run, 3])": "every one of the runs must be a run, as sp.runs and sp.train return them; got 3.",
    "sp.figure(run, 3)": "the name of a figure must be text; got 3.",
    "sp.figure(run, 'heat')": "unknown figure 'heat'; did you mean heatmap?",
    "sp.figure(run, 'loss').save(3)": "path must be that of a file, such as figure.svg; got 3.",
    "sp.figure(run, 'loss').save('x.bmp')": "a figure is saved as .png, .svg, .pdf, .html, .json; got 'x.b",
    "sp.report(run, 3)": "path must be the path of an HTML file; got 3.",
    "sp.load_model(3)": "a target must be a run, a model, or the name of a run or a checkpoint; got",
    "sp.check_laws('rope', seed='a')": "seed must be a whole number; got 'a'.",
    "sp.check_laws(int)": "check_laws takes an encoding, its class, configuration or name; got <class 'int",
    "sp.OwnModel(3)": "OwnModel takes a torch.nn.Module; got a int.",
    "sp.OwnModel(decoder, vocabulary='9')": "OwnModel.vocabulary must be a whole number; got '9'.",
    "sp.OwnModel(decoder, vocabulary=9, max_length='a')": "OwnModel.max_length must be a whole number; got",
    "sp.DecoderConfig(n_layers='2')": "DecoderConfig.n_layers must be a whole number; got '2'.",
    "sp.DecoderConfig(encoding='rop')": "unknown encoding 'rop'; did you mean rope",
    "sp.Decoder(3)": "the configuration of a Decoder must be a DecoderConfig; got 3.",
    "rope(torch.ones(1, 2, 3, 64), torch.ones(1, 1, 3, 64))": "RoPE takes queries (b, h, i, d) and keys",
    "rope(torch.ones(1, 2, 3, 32), torch.ones(1, 2, 3, 32))": "RoPE was built with head_dim=64; got queries",
}
SCRIPT = """
import sys
import torch
import spectrope as sp
from spectrope.core.errors import SpectropeError
small = {"epochs": 1, "n_examples": 60, "watch": sp.unwatched}
one = sp.experiment("distance", "rope", epochs=1, n_examples=60)
run = sp.train(one, watch=sp.unwatched)
decoder, rope = sp.load_model(run), sp.encodings.RoPE(head_dim=64)
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
def told(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wrong")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT],
        input="\n".join(CALLS),
        capture_output=True,
        text=True,
        check=True,
        cwd=folder,
    )
    return dict(zip(CALLS, done.stdout.splitlines(), strict=True))


@pytest.mark.sampled
@pytest.mark.parametrize("call", CALLS)
def test_a_wrong_argument_gets_one_line(told, call):
    assert told[call].startswith(CALLS[call])
    assert " | " not in told[call]
    assert "--" not in told[call]
