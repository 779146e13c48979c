"""How long the atlas of a Llama of 100 million parameters takes on one core, and how often it is right.

`python -m benchmarks.atlas [CHECKPOINT]` takes some 20 minutes, most of them for a screened atlas. Weights
are random, which changes no operation. Three cells of each head are timed in three layers on 8 sequences of
128 tokens; all cells of all heads are as many times that, because they differ only in the layer from which
the model is rerun. Beside it stands what cannot be saved, if it costs what it costs in a plain forward pass:
the part of a head's block that its change alters, by its share of the block's multiplications, the blocks
behind it, and logits and losses of the tokens that are scored. With a trained checkpoint of at most four
layers, adaptive and screened calls are compared with exact costs, and the cells computed are counted.
"""

import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from benchmarks.harness import store
from transformers import LlamaConfig, LlamaForCausalLM

from spectrope.checkpoints import atlas_checkpoint, open_model
from spectrope.checkpoints.ablation.calls import CallMethod
from spectrope.checkpoints.ablation.cuts import hit_and_loss
from spectrope.checkpoints.ablation.sources import FillSources, rotary_means
from spectrope.checkpoints.ablation.subject import CheckpointSubject
from spectrope.checkpoints.ablation.sweep import checkpoint_scores
from spectrope.checkpoints.adapters import evaluating
from spectrope.checkpoints.language import task_sequences
from spectrope.checkpoints.sequences import Sequences
from spectrope.lab import cells_of

SEQUENCES, LENGTH, BANDS = 8, 128, 4
TIMED = (0, 6, 11)  # Layers.
POPULATION = 128  # Sequences of the trained model.
THRESHOLD = 5  # Points.


def llama() -> LlamaForCausalLM:
    """About 100 million parameters: 12 layers of 12 heads of width 64."""
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"hidden_size": 768, "intermediate_size": 2048, "num_hidden_layers": 12}
    return LlamaForCausalLM(LlamaConfig(vocab_size=10_000, num_attention_heads=12, **sizes)).eval()


def seconds(work: Callable[[], Any]) -> float:
    """Processor time of some work."""
    start = time.process_time()
    work()
    return time.process_time() - start


@torch.no_grad()
def cost(model: LlamaForCausalLM) -> dict[str, Any]:
    """Processor time per cell by layer, and that of a whole atlas."""
    subject, data = CheckpointSubject.of(model), task_sequences(model, "induction", SEQUENCES, LENGTH)
    forward = min(seconds(lambda: model(**data.inputs(1))) for _ in range(3))
    logits, readout = _readout(model, data)
    with evaluating(model):
        gathering = seconds(lambda: rotary_means(subject, data))
        means = rotary_means(subject, data)
    n_layers, n_heads = len(subject.sites), subject.sites[0].n_heads
    per_cell = {layer: _per_cell(subject, data, means, layer) for layer in TIMED}
    cells = len(cells_of([(0, 0)], BANDS))
    mean = sum(per_cell.values()) / len(per_cell)  # Layers are evenly spaced, and the cost is linear in them.
    block = (forward - logits) / n_layers
    limit = {layer: block * (n_layers - layer - 1 + _own(model.config)) + readout for layer in TIMED}
    return {
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "forward_s": forward,
        "gathering_s": gathering,
        "cell_s": per_cell,
        "limit_s": limit,
        "cells": cells * n_heads * n_layers,
        "whole_min": (mean * cells * n_heads * n_layers + gathering) / 60,
    }


def screened(model: LlamaForCausalLM) -> dict[str, Any]:
    """Processor time of a whole screened atlas, in which no cell of random weights costs."""
    begun = time.process_time()
    atlas = atlas_checkpoint(model, "induction", examples=SEQUENCES, length=LENGTH, method="screened")
    return {
        "whole_min": (time.process_time() - begun) / 60,
        "cells": len(atlas.cells),
        "measured": int((atlas.cells["n"] > 0).sum()),
        "controls": atlas.calls.controls.n if atlas.calls.controls else 0,
    }


def _own(config: LlamaConfig) -> float:
    """Share of a block's multiplications that a changed head needs: its columns, and the feed-forward."""
    width, inner = config.hidden_size, config.intermediate_size
    own = 3 * width * inner + width * width // config.num_attention_heads
    return own / (4 * width**2 + 2 * LENGTH * width + 3 * width * inner)


def _readout(model: LlamaForCausalLM, data: Sequences) -> tuple[float, float]:
    """Time of the logits of all tokens, and of logits and losses of those that are scored."""
    states, targets = torch.randn(*data.ids.shape, model.config.hidden_size), data.targets[data.scored]
    works: tuple[Callable[[], Any], ...] = (
        lambda: model.lm_head(states),
        lambda: hit_and_loss(model.lm_head(states[data.scored]), targets),
    )
    every, scored = (min(seconds(work) for _ in range(3)) for work in works)
    return every, scored


def _per_cell(subject: CheckpointSubject, data: Any, means: Any, layer: int) -> float:
    """Mean over three cells of each head, beyond a pass of the intact model."""
    heads = [(layer, head) for head in range(subject.sites[layer].n_heads)]
    chosen = [cells_of([head], BANDS)[::7] for head in heads]
    variants = [(), *(cell.variant for cells in chosen for cell in cells)]
    sources = FillSources(site_means=means)

    def run(chosen: Any) -> float:
        return seconds(lambda: checkpoint_scores(subject, data, chosen, sources=sources))

    run(variants[:1])
    return (run(variants) - run(variants[:1])) / (len(variants) - 1)


def calls(checkpoint: str, method: CallMethod) -> dict[str, Any]:
    """How many calls equal the exact ones, and how many cells times sequences they took."""
    model = open_model(checkpoint)
    given: dict[str, Any] = {"on": "induction", "examples": POPULATION}
    start = time.process_time()
    exact = atlas_checkpoint(model, **given)
    middle = time.process_time()
    found = atlas_checkpoint(model, method=method, **given)
    end = time.process_time()
    wanted = exact.cells["drop"] > THRESHOLD
    return {
        "cells": len(wanted),
        "costs": int(wanted.sum()),
        "right": int(((found.cells["call"] == "costs") == wanted).sum()),
        "exact_s": middle - start,
        f"{method}_s": end - middle,
        "passes": [exact.passes, found.passes],
    }


def main() -> None:
    torch.set_num_threads(1)
    rows = [{"label": "a Llama of 100 million parameters, one core, float32", **cost(llama())}]
    print(rows[0], flush=True)
    rows.append({"label": "a screened atlas of the same model", **screened(llama())})
    print(rows[1], flush=True)
    methods: tuple[CallMethod, ...] = ("adaptive", "screened")
    for method in methods if sys.argv[1:] else ():
        rows.append({"label": f"{method} calls of a trained model", **calls(sys.argv[1], method)})
        print(rows[-1], flush=True)
    store("atlas", rows)


if __name__ == "__main__":
    main()
