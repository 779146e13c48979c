"""Nothing in the public API reads or advances a global random generator of torch, NumPy or Python."""

import contextlib
import random
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import polars as pl
import pytest
import rich.style  # noqa: F401  # Draws from Python's generator once, when it is imported.
import torch
import transformers
from torch import Tensor

import spectrope
from spectrope.attention import IMPLEMENTATIONS, attention
from spectrope.attention.heads import ATTENTIONS
from spectrope.checkpoints.attention_plan import plan_checkpoint
from spectrope.core.errors import UnsupportedError
from spectrope.core.noise import Noise
from spectrope.core.random import initial_weights
from spectrope.encodings.base import ENCODINGS, Context
from spectrope.encodings.rope import RoPE
from spectrope.fast import forecast, plan, table
from spectrope.fast.model_plan import PlanAim
from spectrope.grokking.config import GrokExperiment, GrokTraining
from spectrope.grokking.models.base import MODULAR_MODELS
from spectrope.grokking.tasks.modular import ModularConfig
from spectrope.grokking.trainer import MOMENTS
from spectrope.lab.ablation.fills.base import FILLS
from spectrope.lab.ablation.methods import Exact, Screen, ablate
from spectrope.lab.ablation.protocols import Protocol
from spectrope.lab.job import train
from spectrope.lab.spectra.heads import Measurement, spectrum
from spectrope.lab.training.state import WEIGHTS
from spectrope.tasks.base import TASKS

CPU = torch.device("cpu")
SIZES = {"d_model": 16, "n_heads": 4, "head_dim": 8, "max_length": 24, "causal": True}


def states() -> dict[str, bytes]:
    words = np.random.get_state()
    return {
        "torch": torch.get_rng_state().numpy().tobytes(),
        "numpy": repr((words[1].tobytes(), words[2:])).encode(),
        "random": repr(random.getstate()).encode(),
    }


def undisturbed(seed: int, call: Callable[[], Any]) -> Any:
    """What a call returns after all global generators were seeded, which it must leave as they are."""
    torch.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)
    before = states()
    result = call()
    assert [name for name, state in states().items() if state != before[name]] == []
    return result


def same(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor):
        return torch.equal(a, b)
    if isinstance(a, pl.DataFrame):
        return a.equals(b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


def unaffected(call: Callable[[int], Any]) -> None:
    """Under two global seeds: the generators stay as they are, and the results are the same."""
    first, second = (undisturbed(seed, lambda seed=seed: call(seed)) for seed in (0, 1))
    assert same(first, second)


def tensors(*shape: int, n: int = 3) -> list[Tensor]:
    draw = torch.Generator().manual_seed(0)
    return [0.1 * torch.randn(shape, generator=draw) for _ in range(n)]


def context(n: int = 20) -> Context:
    pos = torch.arange(n)[None]
    q, k = tensors(2, 4, n, 8, n=2)
    (x,) = tensors(2, n, 16, n=1)
    return Context(q, k, pos, pos, x, x)


def weights(module: torch.nn.Module) -> dict[str, Tensor]:
    return dict(module.state_dict())


def tables(run: spectrope.Run) -> dict[str, Any]:
    return {name: run.frame(name) for name in run.frames}


@pytest.mark.parametrize("name", ENCODINGS)
def test_building_an_encoding_and_computing_logits(name):
    def call(seed):
        encoding = ENCODINGS.config(name)().fitted(**SIZES).build()
        layers = ENCODINGS.config(name)().fitted(**SIZES).build_layers(2)
        return [weights(encoding), encoding.logits(context()).detach(), *map(weights, layers)]

    unaffected(call)


@pytest.mark.parametrize("name", ATTENTIONS)
def test_building_a_decoder(name):
    def call(seed):
        one = spectrope.experiment("distance", "t5", attention=ATTENTIONS.config(name)())
        return weights(spectrope.Decoder(one.model))

    unaffected(call)


def test_layers_of_one_model_still_start_differently():
    first, second = ENCODINGS.config("shaw")().fitted(**SIZES).build_layers(2)
    assert not torch.equal(first.keys, second.keys)
    with initial_weights(7):
        other = ENCODINGS.config("shaw")().fitted(**SIZES).build()
    assert not torch.equal(first.keys, other.keys)


AVAILABLE = [
    name
    for name in IMPLEMENTATIONS
    if IMPLEMENTATIONS[name].objection(RoPE(RoPE.Config()), CPU, None) is None
]


@pytest.mark.parametrize(("impl", "n"), [(impl, 20) for impl in (*AVAILABLE, "fastest")] + [("auto", 4000)])
def test_attention_forward_and_backward(impl, n):
    encoding = RoPE(RoPE.Config(head_dim=8))
    drops = impl == "fastest" or IMPLEMENTATIONS[impl].dropout

    def call(seed):
        ctx, (v,) = context(n), tensors(2, 4, n, 8, n=1)
        leaves = [x.requires_grad_() for x in (ctx.q, ctx.k, v)]
        results = []
        for noise in (None, Noise(0.1, 3, CPU)) if drops else (None,):
            out = attention(ctx, v, encoding, causal=True, impl=impl, noise=noise)
            results += [out.detach(), *torch.autograd.grad(out.square().sum(), leaves)]
        return results

    unaffected(call)


@pytest.mark.parametrize("name", TASKS)
def test_sampling_a_task(name):
    def call(seed):
        task = TASKS.config(name)().build()
        batches = [task.sample(30, 3), *task.split(20, 10, 3)]
        return [tensor for batch in batches for tensor in (batch.inputs, batch.labels, batch.lengths)]

    unaffected(call)


def tiny(encoding: str = "t5", **fields: Any) -> Any:
    one = spectrope.experiment("distance", encoding, epochs=1, n_examples=80, **fields)
    model = replace(one.model, d_model=16, n_heads=2, n_layers=2, d_ff=16)
    return replace(one, model=model, training=replace(one.training, batch_size=32))


def test_training_and_ablating(tmp_path):
    def call(seed):
        (run,) = spectrope.execute([tiny()], tmp_path / str(seed), device="cpu")
        return [tables(run), weights(spectrope.load_model(run, device="cpu"))]

    unaffected(call)


@pytest.mark.parametrize("encoding", ["rope", "mla"])
def test_ablating_with_every_fill_and_measuring_spectra(tmp_path, encoding):
    (run,) = spectrope.execute([tiny(encoding)], tmp_path, device="cpu")

    def call(seed):
        results = [
            ablate(run, CPU, Screen(examples=16)),
            spectrum(run, CPU, Measurement(examples=8, draws=9)),
        ]
        for fill in FILLS:
            with contextlib.suppress(UnsupportedError):  # Some fills are for latent attention alone.
                results.append(ablate(run, CPU, Exact(protocol=Protocol(fill=fill), examples=16)))
        assert len(results) > len(FILLS)
        return results

    unaffected(call)


@pytest.fixture(scope="module")
def llama():
    torch.manual_seed(0)
    sizes = {"vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = transformers.LlamaConfig(**sizes, intermediate_size=48, max_position_embeddings=64)
    return transformers.LlamaForCausalLM(config).eval()


def test_auditing_a_checkpoint(llama, tmp_path):
    llama.save_pretrained(tmp_path)
    unaffected(lambda seed: [asdict(spectrope.audit(m, serving_modes=True)) for m in (llama, tmp_path)])


@pytest.mark.parametrize("name", MODULAR_MODELS)
def test_grokking(tmp_path, name):
    one = GrokExperiment(
        task=ModularConfig(p=7, fraction=0.6),
        model=MODULAR_MODELS.config(name)(),
        training=GrokTraining(steps=6, evaluate_every=3),
    )

    def call(seed):
        run = train(one, tmp_path / str(seed), CPU)
        return [tables(run), run.read_tensors(MOMENTS)[0], run.read_tensors(WEIGHTS)[0]]

    unaffected(call)


def test_planning_fast_attention(llama):
    rope = RoPE(RoPE.Config(head_dim=8))
    ids = torch.arange(5, 25).view(2, 10)

    def call(seed):
        heads = plan(context(), rope, causal=True).heads
        longer = forecast(context(), rope, 65_536, causal=True)
        return [
            *map(asdict, heads),
            *map(asdict, longer),
            table(plan_checkpoint(llama, ids, PlanAim(length=64))),
        ]

    unaffected(call)
