"""Which heads of a Llama of 100 million parameters cost more than 5 points of accuracy, on one core.

`python -m benchmarks.heads` takes about half an hour of processor time. It compares the exact sweep, and
calls by screening and adaptive sampling, with one hooked forward pass per head: by plain hooks on the model
itself, and in transformer-lens where it is installed (see `benchmarks.audit`). Sequences are random tokens,
and their targets are what the intact model predicts, so that its accuracy is 100 %. Weights are random; the
output projections of all heads but nine are scaled down so far that these heads cost little.

Hooked passes are timed six times while each side runs, on 1,024 tokens and a head of another layer each time;
a pass per head and batch takes as many times that. The gate: their drops are those of the exact sweep, and
the heads above 5 points are those of the exact sweep, and are called so. Heads that screening leaves out
count as not called.
"""

import copy
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from benchmarks.atlas import llama
from benchmarks.harness import store
from torch import Tensor
from transformers import AutoTokenizer, LlamaForCausalLM

from spectrope.checkpoints.ablation.calls import Caller, CallMethod, Calls
from spectrope.checkpoints.ablation.sources import FillSources
from spectrope.checkpoints.ablation.subject import CheckpointSubject
from spectrope.checkpoints.ablation.sweep import CheckpointSweep, checkpoint_sweep
from spectrope.checkpoints.sequences import Sequences
from spectrope.core import Progress
from spectrope.lab import COSTS, HeadAblation, call_of

LAYERS, HEADS, WIDTH, TOKENS, TURNS = 12, 12, 64, 1024, 6
THRESHOLD, EMBEDDINGS, QUIET = (
    5.0,
    5.0,
    0.01,
)  # Points; factors of the embeddings and of heads that cost little.
PLANTED = {
    (0, 3): 0.1,
    (2, 7): 0.5,
    (3, 0): 0.15,
    (5, 1): 1.0,
    (7, 10): 1.0,
    (8, 2): 0.1,
    (9, 4): 1.0,
    (10, 11): 0.3,
    (11, 8): 1.0,
}
SIZES: dict[tuple[int, int], tuple[CallMethod, ...]] = {
    (8, 128): ("screened",),
    (256, 4): ("screened-adaptive",),
}  # Methods for sequences and tokens of each; 8 sequences are too few to stop early.
NEAR = 0.5  # Points by which rounding may change a drop on one batch, among them ties of the model's logits.
Pass = Callable[[Tensor, int, int], Tensor]


def attentions(model: LlamaForCausalLM) -> list[Any]:
    """The attention module of each layer."""
    return [block.self_attn for block in model.model.layers]


@torch.no_grad()
def planted() -> LlamaForCausalLM:
    """The Llama in which nine heads are louder than all others."""
    model = llama()
    model.model.embed_tokens.weight.mul_(EMBEDDINGS)
    for layer, attention in enumerate(attentions(model)):
        columns = attention.o_proj.weight.unflatten(1, (HEADS, WIDTH))
        for head in range(HEADS):
            columns[:, head] *= PLANTED.get((layer, head), QUIET)
    return model


@torch.no_grad()
def sequences(model: LlamaForCausalLM, n: int, length: int) -> Sequences:
    """Random tokens and the model's own predictions."""
    ids = torch.randint(model.config.vocab_size, (n, length), generator=torch.Generator().manual_seed(1))
    targets = torch.cat([model(part).logits.argmax(-1) for part in ids.split(TOKENS // length)])
    return Sequences(ids, targets, torch.full((n,), length))


def by_hooks(model: LlamaForCausalLM, ids: Tensor, layer: int, head: int) -> Tensor:
    """Token logits without a head, by a plain hook."""

    def silence(_: Any, args: tuple[Tensor]) -> tuple[Tensor]:
        outputs = args[0].clone()
        outputs[..., WIDTH * head : WIDTH * head + WIDTH] = 0
        return (outputs,)

    handle = attentions(model)[layer].o_proj.register_forward_pre_hook(silence)
    logits = model(ids, use_cache=False).logits
    handle.remove()
    return logits


def by_lens(model: Any, ids: Tensor, layer: int, head: int) -> Tensor:
    """Token logits without a head, in transformer-lens."""

    def silence(outputs: Tensor, hook: Any) -> Tensor:
        outputs[:, :, head] = 0
        return outputs

    hooks = [(f"blocks.{layer}.attn.hook_z", silence)]
    return model.run_with_hooks(ids, return_type="logits", fwd_hooks=hooks)


def lens(model: LlamaForCausalLM) -> Any:
    """The same model in transformer-lens, which wants a tokenizer although none is used."""
    from tests.checkpoints.adapters.tokenizers import save_tokenizer

    bridge = import_module("transformer_lens.model_bridge").TransformerBridge
    with tempfile.TemporaryDirectory() as folder:
        model.config.save_pretrained(folder)
        save_tokenizer(folder)
        tokenizer: Any = AutoTokenizer.from_pretrained(folder)
        return bridge.boot_transformers(folder, hf_model=copy.deepcopy(model), tokenizer=tokenizer)


@dataclass
class Beside:
    """Hooked passes on the first batch, timed at every sixth of the progress of other work.

    Args:
        passes: The passes by name.
        data: Sequences of the first batch.
        times: Seconds of each pass so far, by name.
        drops: Drops in points on that batch, by name and head.
        spent: Seconds of all of them.
    """

    passes: dict[str, Pass]
    data: Sequences
    times: dict[str, list[float]] = field(default_factory=dict)
    drops: dict[tuple[str, int, int], float] = field(default_factory=dict)
    spent: float = 0.0

    def watch(self, at: Progress) -> None:
        """Time the passes where another sixth is done."""
        for turn in range(len(self.times.get("hooks", [])), TURNS * at.done // at.total):
            self.spent += sum(self._run(name, turn * LAYERS // TURNS) for name in self.passes)

    @torch.no_grad()
    def _run(self, name: str, layer: int) -> float:
        head, start = 5 * layer % HEADS, time.process_time()
        logits = self.passes[name](self.data.ids, layer, head)
        wrong = logits.argmax(-1) != self.data.targets
        took = time.process_time() - start
        self.times.setdefault(name, []).append(took)
        self.drops[name, layer, head] = 100 * float(wrong.double().mean())
        return took


def same_calls(calls: Calls, exact: CheckpointSweep, method: CallMethod) -> None:
    """The heads above the threshold are those of the exact sweep, and are called as its intervals call them;
    those of adaptive sampling refer to the given sequences, over which drops are exact."""
    costs = exact.costs()
    above = [cost.drop > THRESHOLD for cost in costs]
    assert [drop is not None and drop > THRESHOLD for drop in calls.table["drop"]] == above, (
        f"{method}: others"
    )
    called = above
    if not method.endswith("adaptive"):
        called = [call_of(cost.drop_low, cost.drop_high, THRESHOLD) == COSTS for cost in costs]
    assert [call == COSTS for call in calls.table["call"]] == called, f"{method}: others are called"


@dataclass(frozen=True)
class Sides:
    """All sides on some sequences."""

    model: LlamaForCausalLM
    data: Sequences
    passes: dict[str, Pass]

    def rows(self, methods: tuple[CallMethod, ...]) -> Iterator[dict[str, Any]]:
        """A row per side."""
        first = self.data[: TOKENS // self.data.width]
        subject = CheckpointSubject.of(self.model)
        exact, beside, row = self._timed(
            "exact", lambda watch: checkpoint_sweep(subject, self.data, watch=watch)
        )
        assert isinstance(exact, CheckpointSweep)
        hits = dict(zip([head[1:] for head in exact.heads], exact.ablated[:, : len(first), 1], strict=True))
        for (name, layer, head), drop in beside.drops.items():
            off = abs(drop - 100 * (1 - hits[layer, head].mean()))
            assert off < NEAR, f"{name}: the drop of {layer}.{head} is off by {off} points"
        yield row | {"heads_that_cost": sum(cost.drop > THRESHOLD for cost in exact.costs())}
        changes = [HeadAblation(layer, head) for layer in range(LAYERS) for head in range(HEADS)]
        for method in methods:

            def call(watch: Any, method: CallMethod = method) -> Calls:
                return Caller(subject, self.data, changes, THRESHOLD, FillSources(), watch=watch).calls(
                    method
                )

            calls, _, row = self._timed(method, call)
            same_calls(calls, exact, method)
            passes = int(calls.table["n"].sum())
            counts = {
                "measured": int((calls.table["n"] > 0).sum()),
                "passes_share": passes / exact.ablated[..., 0].size,
            }
            yield row | counts

    def _timed(self, name: str, work: Callable[[Any], Any]) -> tuple[Any, Beside, dict[str, Any]]:
        """The result of some work, the passes timed beside it, and how many times longer they take."""
        beside = Beside(self.passes, self.data[: TOKENS // self.data.width])
        start = time.process_time()
        found = work(beside.watch)
        took = time.process_time() - start - beside.spent
        row: dict[str, Any] = {
            "label": f"{name}, {len(self.data)} x {self.data.width} tokens",
            "seconds": took,
        }
        batches = len(self.data) * self.data.width / TOKENS
        for other, times in beside.times.items():
            ratios = [one * batches * LAYERS * HEADS / took for one in times]
            low, middle, high = statistics.quantiles(ratios, n=4)
            row |= {f"{other}_over_it": middle, f"{other}_over_it_quartiles": [low, high]}
        print(row, flush=True)
        return found, beside, row


def main() -> None:
    torch.set_num_threads(1)
    model = planted()
    passes: dict[str, Pass] = {"hooks": partial(by_hooks, model)}
    if find_spec("transformer_lens"):
        passes["transformer_lens"] = partial(by_lens, lens(model))
    rows: list[dict[str, Any]] = []
    for (n, length), methods in SIZES.items():
        for row in Sides(model, sequences(model, n, length), passes).rows(methods):
            rows.append(row)
            store("heads", rows)


if __name__ == "__main__":
    main()
