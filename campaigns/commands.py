"""The commands that campaigns interrupt: small ones, each with what must lie in its folder before."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

SMALL = ("--epochs", "1", "--examples", "150", "--set", "batch_size=32", "micro_batch=32", "eval_examples=20")
TINY = ("d_model=16", "n_heads=2", "n_layers=2", "d_ff=16")


def nothing(folder: Path) -> list[tuple[str, ...]]:
    """Let a command begin in an empty folder."""
    return []


def one_run(folder: Path) -> list[tuple[str, ...]]:
    """Train a run first."""
    return [("train", *SMALL, *TINY)]


def checkpoint(folder: Path) -> list[tuple[str, ...]]:
    """Write a tiny checkpoint of Llama with random weights."""
    import torch
    from safetensors.torch import save_file

    d, width, vocabulary = 16, 32, 64
    config = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": d,
        "intermediate_size": width,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "num_hidden_layers": 1,
        "vocab_size": vocabulary,
        "max_position_embeddings": 64,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "tie_word_embeddings": True,
        "torch_dtype": "float32",
    }
    draw = torch.Generator().manual_seed(0)

    def matrix(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=draw) / 4

    layer = "model.layers.0"
    weights = {f"{layer}.self_attn.{name}_proj.weight": matrix(d, d) for name in "qkvo"}
    weights |= {f"{layer}.mlp.{name}_proj.weight": matrix(width, d) for name in ("gate", "up")}
    weights |= {
        f"{layer}.{name}.weight": torch.ones(d) for name in ("input_layernorm", "post_attention_layernorm")
    }
    weights |= {
        "model.embed_tokens.weight": matrix(vocabulary, d),
        "model.norm.weight": torch.ones(d),
        f"{layer}.mlp.down_proj.weight": matrix(d, width),
    }
    (folder / "model").mkdir()
    save_file(weights, folder / "model" / "model.safetensors", metadata={"format": "pt"})
    (folder / "model" / "config.json").write_text(json.dumps(config))
    return []


@dataclass(frozen=True)
class Command:
    """A command to interrupt.

    Args:
        words: What is typed; RUN stands for the id of the run that the folder holds before.
        prepare: Writes what must be there before, and returns the commands that make the rest.
        answers: Exit codes of an undisturbed end.
        resume: What is typed afterwards, where it is not the same.
        tiny: Whether the scales of the study are made tiny.
    """

    words: tuple[str, ...]
    prepare: Callable[[Path], list[tuple[str, ...]]] = nothing
    answers: tuple[int, ...] = (0,)
    resume: tuple[str, ...] = ()
    tiny: bool = False


COMPARE = ("compare", "--encodings", "rope", "nope", "--tasks", "distance", *SMALL, *TINY)
CLAIMS = ("claims", "run", "partial-rope", "--condition", "controlled", "--seeds", "0:1", "--rows", "rows")

COMMANDS = {
    "train": Command(("train", *SMALL, *TINY)),
    "compare --workers 2": Command((*COMPARE, "--workers", "2"), resume=(*COMPARE, "--workers", "1")),
    "ablate": Command(("ablate", "RUN"), one_run),
    "claims run": Command((*CLAIMS, "--workers", "1"), tiny=True),
    "grok": Command(
        ("grok", "--p", "11", "--steps", "6", "--set", "evaluate_every=3", "--runs", "runs"),
    ),
    "audit --out": Command(
        ("audit", "model", "--length", "32", "--out", "audit.html"), checkpoint, (0, 1, 3)
    ),
    "lock": Command(("lock", "model", "--length", "32"), checkpoint),
}
