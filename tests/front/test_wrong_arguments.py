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
    "sp.experiment('rope', 'distance')": "task 'rope' is an encoding; the task is named first,",
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
    "sp.experiment('distance', 'rope', seed=2**63)": "Experiment.seed must be below 2**63; got 9223372036854",
    "sp.train('rope', settings={'seed': 5})": "settings must leave the seed out; got 5. It is an argument:",
    "sp.compare('rope', 'distance', scalings='yarn')": "scalings go with lengths, such as lengths=(1, 2);",
    "sp.compare('rope', 'distance', lengths='2')": "each of lengths must be a number; got '2'.",
    "sp.compare('rope', 'distance', lengths=[True])": "each of lengths must be a number; got True.",
    "sp.compare('rope', 'distance', lengths=2, scalings='yarm')": "unknown scaling 'yarm'; did you mean",
    "sp.compare('rope', 'distance', engine='ray')": "engine must be an engine, such as spectrope.lab.Ray();",
    "sp.compare('rope', 'distance', engine=local, workers=7)": "workers are for runs without an engine; got",
    "sp.compare('rope', 'distance', engine=local, device='cpu')": "device is for runs without an engine; got",
    "sp.atlas(run, method='Adaptive')": "method must be one of exact, adaptive, screened, screened-adaptive;",
    "sp.atlas(run, watch=3)": "watch must be a function of the progress, such as sp.unwatched; got 3.",
    "sp.atlas(run, bands='2')": "bands must be a whole number; got '2'.",
    "sp.atlas(run, threshold='a')": "threshold must be a number of points; got 'a'.",
    "sp.export('abc', None)": "run must be a run, as sp.runs and sp.train return them; got 'abc'.",
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
    "sp.DecoderConfig(dropout='x')": "DecoderConfig.dropout must be a number; got 'x'.",
    "sp.DecoderConfig(dropout_at=('patern',))": "DecoderConfig.dropout_at must be some of pattern, attention",
    "sp.Decoder(sp.DecoderConfig(pooling='max'))": "DecoderConfig.pooling: Input should be 'mean' or 'last';",
    "sp.Decoder(sp.DecoderConfig(feed_forward='swish'))": "DecoderConfig.feed_forward: Input should be ",
    "sp.Decoder(sp.DecoderConfig(memory='embedding'))": "DecoderConfig.memory: Input should be 'hidden' or",
    "sp.Decoder(sp.DecoderConfig(padding='mask'))": "DecoderConfig.padding: Input should be 'masked' or",
    "sp.Decoder(sp.DecoderConfig(causal='no way'))": "DecoderConfig.causal: Input should be a valid boolean",
    "sp.Decoder(3)": "the configuration of a Decoder must be a DecoderConfig; got 3.",
    "rope(torch.ones(1, 2, 3, 64), torch.ones(1, 1, 3, 64))": "RoPE takes queries (b, h, i, d) and keys",
    "rope(torch.ones(1, 2, 3, 32), torch.ones(1, 2, 3, 32))": "RoPE was built with head_dim=64; got queries",
    "rope(q, q, torch.arange(5))": "q_pos of RoPE must have shape (3,), (2 or 1, 3) or, with axes, (2 or 1, ",
    "rope(q, q, None, torch.zeros(3, 3))": "k_pos of RoPE must have shape (3,), (2 or 1, 3) or, with axes, (",
    "rope(q, q, [0, 1, 2])": "q_pos of RoPE must be a tensor; got [0, 1, 2].",
    "rope(q.numpy(), q)": "queries of RoPE must be a tensor; got array(",
    "rope(q.int(), q.int())": "RoPE takes queries and keys of one floating-point type; got torch.int32 and t",
    "rope(q, q.double())": "RoPE takes queries and keys of one floating-point type; got torch.float32 and to",
    "E.PaTH(n_heads=1, d_model=8, head_dim=64)(q, q, x_k=q)": "x_k of PaTH must have shape (2, 3, c); g",
    "attention(sp.Context(q, q, at, at), q[:, :, :2], rope, causal=True)": "values must be (b, h, j, e) for ",
    "attention(sp.Context(q, q, at, at, mask=at), q, rope, causal=True)": "mask must be Boolean, True where ",
    "E.RoPE.Config(pairs='half').build()": "RoPE.Config.pairs: Input should be 'adjacent' or 'halves'; got '",
    "E.ALiBi.Config(slopes='standart').build()": "ALiBi.Config.slopes: Input should be 'standard' or 'expone",
    "sp.experiment('distance', E.RoPE.Config(pairs='half'))": "RoPE.Config.pairs: Input should be 'adjacent'",
    "E.Sum.Config(parts=(E.RoPE.Config(pairs='half'),)).build()": "RoPE.Config.pairs: Input should be 'adjac",
    "E.RoPE(schedule=E.ALiBi.Config())": "frequency schedule must be the configuration of one; got ALiBi.Con",
    "E.Sum(parts=(E.YaRN(),))": "encoding must be the configuration of one; got YaRN(",
    "sp.experiment('distance', 'rope:linear,factor=Infinity')": "Linear.factor: Input should be a finite num",
    "sp.load_encoding('rope:yarn:linear')": "'rope:yarn:linear' gives schedule twice.",
    "E.complex_pairs(q, 'interleaved')": "pairing must be one of adjacent, halves; got 'interleaved'.",
    "named('RoPE')": "encoding 'RoPE' is spectrope.encodings.rope.RoPE already; choose another name.",
    "named('P-RoPE')": "encoding 'P-RoPE' is a name for 'rope:proportional' already; choose another name.",
    "sp.experiment('distance', named('mla'))": "encoding 'mla' is named like an attention layer; choose anot",
    "sp.check_laws(Bare)": "Bare: every field needs a default; TypeError: ",
    "sp.check_laws(Failing)": "this session's Failing fails in a test: RuntimeError: ",
    "sp.spectrum(Failing)": "this session's Failing fails in a test: IndexError: ",
    "sp.spectrum(Failing())": "this session's Failing fails in a test: IndexError: ",
    "S.ToeplitzOperator([1.0])": "lags must be a tensor, such as torch.as_tensor makes of an array or a list",
    "S.toeplitz_shares(q.numpy())": "logits must be a tensor, such as torch.as_tensor makes of an array or a",
    "S.toeplitz_shares(torch.eye(3) * 1j)": "logits must be real; take the real part of complex ones.",
    "S.nearest_toeplitz([[1.0]])": "matrix must be a tensor, such as torch.as_tensor makes of an array or a ",
    "S.schur_bounds(torch.eye(2), torch.eye(3))": "w and c must have one shape; got (2, 2) and (3, 3).",
    "S.variance_ratio(torch.eye(2), torch.eye(3))": "w and c must have one shape; got (2, 2) and (3, 3).",
    "S.head_contraction(torch.eye(2), torch.eye(3))": "turned and plain must have one shape; got (2, 2) and ",
    "S.gauss_newton(torch.eye(2), torch.ones(2, 2).tril())": "curvature must be real and symmetric.",
    "S.majorises(torch.ones(2).numpy(), torch.ones(2).numpy())": "x must be a tensor, such as torch.as_tenso",
    "S.term_energies([[[1.0]]])": "terms must be a tensor, such as torch.as_tensor makes of an array or a li",
    "S.factorisation_residuals(torch.ones(3, 2), torch.ones(3, 2), torch.ones(2))": "q and k must be complex",
    "S.toeplitz_shares(torch.ones(0, 0))": "logits must have at least one position; got (0, 0).",
    "S.rope_kernel(torch.ones(2), -1)": "n must be at least 1; got -1.",
    "S.ToeplitzOperator.of(torch.abs, 0)": "n must be at least 1; got 0.",
    "S.gradient_spectrum(torch.ones(4, 1, 1), torch.ones(1), causal=False)": "lags from -(n-1) to n-1 must b",
    "S.summarise(torch.ones(2, 3))": "matrix must be square; got (2, 3).",
    "S.null_shares(0)": "n must be at least 1; got 0.",
    "S.eigenvalue_match(unit, lambda theta: torch.exp(1j * theta))": "symbol must be real for eigenvalues; s",
    "S.eigenvalue_match(unit, lambda theta: theta * torch.nan)": "symbol must be finite; got ",
    "S.row_centred(torch.full((2, 2), torch.inf))": "logits must be finite; got 4 of 4 NaN or infinite.",
    "RotaryCell(dtype='float8')": "RotaryCell.dtype must be one of float32, bfloat16, float16; got 'float8'.",
    "conform(lambda x, positions: x, only=[])": "only must name at least one cell.",
}
SCRIPT = """
import sys
from dataclasses import dataclass
import torch
import spectrope as sp
from spectrope import encodings as E, spectral as S
from spectrope.attention import attention
from spectrope.conformance import RotaryCell, conform
from spectrope.core.errors import SpectropeError
from spectrope.lab.engines.local import Local


def named(name):
    @dataclass(frozen=True, kw_only=True)
    class Config(E.EncodingConfig):
        n_heads: int = 8

    return type("Own", (E.LagBias,), {"Config": Config}, name=name)


class Bare(E.LagBias, name="bare"):
    @dataclass(frozen=True, kw_only=True)
    class Config(E.EncodingConfig):
        rate: float


class Failing(E.LagBias, name="failing"):
    @dataclass(frozen=True, kw_only=True)
    class Config(E.EncodingConfig):
        n_heads: int = 8

    def lag_bias(self, lag):
        return -lag.abs().double()


q, at, unit = torch.ones(2, 1, 3, 64), torch.arange(3)[None], S.ToeplitzOperator(torch.ones(3))
small = {"epochs": 1, "n_examples": 60, "watch": sp.unwatched}
one = sp.experiment("distance", "rope", epochs=1, n_examples=60)
run = sp.train(one, watch=sp.unwatched)
decoder, rope, local = sp.load_model(run), E.RoPE(head_dim=64), Local()
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
