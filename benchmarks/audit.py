"""Checkpoints: audits of models with 12 layers, and what every head of one the size of GPT-2 small is worth.

Audits of 512 positions are timed in seconds of processor time on one thread, without serving modes and with
them; `python -m benchmarks.audit 0` runs them alone.

Heads are compared with one hooked forward pass per head: in transformer-lens where it is installed (it needs
an environment of its own), else by plain hooks on the model itself. The goal is nine tenths of the speed-up
that the count of multiplications allows for computing the layers before a head's once, which is printed.
Two heads of each layer are changed unless told: `python -m benchmarks.audit 144` changes all of them, which
takes half an hour on two cores. In an environment that holds transformer-lens and this project's
requirements: `PYTHONPATH=src:. python -m benchmarks.audit`.
"""

import copy
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
import torch.nn.functional as F
import transformers
from benchmarks.harness import Case, run
from jaxtyping import Float
from torch import Tensor
from transformers import AutoTokenizer, GPT2Config, GPT2LMHeadModel

from spectrope.checkpoints.ablation.subject import CheckpointSubject
from spectrope.checkpoints.ablation.sweep import checkpoint_scores
from spectrope.checkpoints.audit import audit
from spectrope.checkpoints.sequences import Sequences, predicting
from spectrope.core import unwatched
from spectrope.lab.ablation.interventions import HeadAblation, Variant

LAYERS, HEADS, WIDTH, LENGTH, SEQUENCES = 12, 12, 768, 128, 8
AUDIT_LENGTH = 512
SIZES = {"hidden_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "vocab_size": 32000}
DISENTANGLED = {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "position_buckets": 256}
AUDITED: tuple[tuple[str, dict[str, Any]], ...] = (
    ("LlamaForCausalLM", {**SIZES, "intermediate_size": 2048}),
    ("BertModel", {**SIZES, "intermediate_size": 3072}),
    ("MptForCausalLM", {"d_model": WIDTH, "n_layers": LAYERS, "n_heads": HEADS, "vocab_size": 32000}),
    ("T5EncoderModel", {"d_model": WIDTH, "d_kv": 64, "num_layers": LAYERS, "num_heads": HEADS}),
    ("XLNetLMHeadModel", {"d_model": WIDTH, "n_layer": LAYERS, "n_head": HEADS, "d_inner": 3072}),
    ("DebertaV2Model", {**SIZES, **DISENTANGLED, "norm_rel_ebd": "layer_norm", "share_att_key": True}),
)
DEFAULT, GATE = 2 * LAYERS, LAYERS // 2  # Heads that are timed, and those on which both ways agree before.
Heads = Sequence[tuple[int, int]]
Sweep = Callable[[Heads], Float[Tensor, " heads"]]


def allowed_speedup(heads: Heads, vocabulary: int) -> float:
    """Multiplications of one forward per head over those left where layers before a head's are run once.

    Per token a layer takes 12 c² for projections and 2 t c for attention, and token logits c V.
    """
    layer, logits = 12 * WIDTH**2 + 2 * LENGTH * WIDTH, WIDTH * vocabulary
    whole = len(heads) * (LAYERS * layer + logits)
    return whole / (LAYERS * layer + sum((LAYERS - first) * layer + logits for first, _ in heads))


@cache
def gpt2() -> Any:
    """A random-weight GPT-2 small, with weights large enough for heads to matter."""
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config()).eval()
    with torch.no_grad():
        for parameter in model.transformer.h.parameters():
            parameter.mul_(2)
    return model


def sequences() -> Sequences:
    """Random tokens; all but the first of each sequence are scored."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(gpt2().config.vocab_size, (SEQUENCES, LENGTH), generator=generator)
    return predicting(ids, torch.ones_like(ids, dtype=torch.bool), torch.full((SEQUENCES,), LENGTH))


def ours(heads: Heads) -> Float[Tensor, " heads"]:
    """Mean loss with each head cut."""
    variants: list[Variant] = [(HeadAblation(*at),) for at in heads]
    return checkpoint_scores(CheckpointSubject.of(gpt2()), sequences(), variants)[..., 0].mean(1)


@torch.no_grad()
def by_hooks(heads: Heads) -> Float[Tensor, " heads"]:
    """The same by one forward pass of the library's model per head."""
    model, ids, losses = gpt2(), sequences().ids, []
    for layer, head in heads:

        def silence(_: Any, args: tuple[Tensor], head: int = head) -> tuple[Tensor]:
            outputs = args[0].clone()
            outputs[..., 64 * head : 64 * head + 64] = 0
            return (outputs,)

        handle = model.transformer.h[layer].attn.c_proj.register_forward_pre_hook(silence)
        logits = model(ids, use_cache=False).logits
        losses.append(F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten()).double())
        handle.remove()
    return torch.stack(losses)


@cache
def lens() -> Any:
    """The same model in transformer-lens, which wants a tokenizer although none is used."""
    from tests.checkpoints.adapters.tokenizers import save_tokenizer

    bridge = import_module("transformer_lens.model_bridge").TransformerBridge
    with tempfile.TemporaryDirectory() as folder:
        gpt2().config.save_pretrained(folder)
        save_tokenizer(folder)
        tokenizer: Any = AutoTokenizer.from_pretrained(folder)
        return bridge.boot_transformers(folder, hf_model=copy.deepcopy(gpt2()), tokenizer=tokenizer)


@torch.no_grad()
def by_lens(heads: Heads) -> Float[Tensor, " heads"]:
    """The same by one hooked forward pass of transformer-lens per head."""
    model, ids, losses = lens(), sequences().ids, []
    for layer, head in heads:

        def silence(outputs: Tensor, hook: Any, head: int = head) -> Tensor:
            outputs[:, :, head] = 0
            return outputs

        hooks = [(f"blocks.{layer}.attn.hook_z", silence)]
        losses.append(model.run_with_hooks(ids, return_type="loss", fwd_hooks=hooks).double())
    return torch.stack(losses)


def agree(found: Float[Tensor, " heads"], expected: Float[Tensor, " heads"]) -> None:
    """Mean losses of both ways differ by at most 1e-4 nats, and heads matter."""
    worst, spread = (found - expected).abs().max().item(), (found.max() - found.min()).item()
    assert worst <= 1e-4, f"a loss is off by {worst:.1e} nats"
    assert spread > 1e-3, "no head matters"
    print(f"losses differ by at most {worst:.1e} nats and spread over {spread:.2g} nats")


def spread(n: int) -> Heads:
    """So many heads, in every layer as far as they go."""
    every = [(layer, head) for layer in range(LAYERS) for head in range(HEADS)]
    return every[:: len(every) // n][:n]


def sweep(n: int) -> Case:
    """Some heads of every layer, or all."""
    heads = spread(n)
    name, other = ("transformer-lens", by_lens) if find_spec("transformer_lens") else ("hooks", by_hooks)
    allowed, few = allowed_speedup(heads, gpt2().config.vocab_size), spread(min(n, GATE))
    found: dict[str, Tensor] = {}

    def fast() -> None:
        found["losses"] = ours(heads)

    return Case(
        f"{n} heads against {name}",
        gate=lambda: agree(ours(few), other(few)),
        fast=fast,
        reference=lambda: agree(found["losses"], other(heads)),
        goal=f">= {0.9 * allowed:.2f}x, 90 % of {allowed:.2f}x",
    )


def audited(architecture: str, fields: dict[str, Any], *, serving: bool) -> Case:
    """The audit of a random-weight model of 12 layers and width 768."""
    torch.manual_seed(0)
    cls = getattr(transformers, architecture)
    model = cls(cls.config_class(**fields)).eval()

    def gate() -> None:
        found = audit(model, length=64, watch=unwatched)
        assert found.ok, "a model that applies what it declares does not match"

    return Case(
        f"{architecture}{'' if serving else ', one mode'}",
        gate=gate,
        fast=lambda: audit(
            model, length=AUDIT_LENGTH, serving_modes=None if serving else False, watch=unwatched
        ),
        goal="< 4 s, 3 s for far positions, < 200 MiB",
        clock=time.process_time,
    )


if __name__ == "__main__":
    n_heads = int(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT
    run("audit", (audited(*one, serving=serving) for one in AUDITED for serving in (False, True)), repeats=3)
    if n_heads:
        run("audit_heads", [sweep(n_heads)], threads=2, repeats=1)
