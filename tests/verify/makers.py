"""Small certificates of every kind."""

import json
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from spectrope.checkpoints.audit import audit
from spectrope.checkpoints.audit.witness import certified_audit
from spectrope.core import unwatched
from spectrope.encodings import ENCODINGS, Context, NoPE, XPos
from spectrope.fast import certified_plan, plan
from spectrope.lab import certified_kernel, encoding_kernels
from spectrope.store import Certified, write_certificate

SIZES: dict[str, Any] = {"vocab_size": 32, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2}
SIZES |= {"num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 64}
PLAIN = {"rope_type": "default", "rope_theta": 500000.0}
LLAMA3 = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0}
LLAMA3 |= {"high_freq_factor": 4.0, "original_max_position_embeddings": 16}


def of_plan(kernel: str) -> Certified:
    """A certificate of one layer's plan, all of whose heads are served by one kernel."""
    generator = torch.Generator().manual_seed(0)
    q, k = (0.2 * torch.randn(1, 2, 40, 8, generator=generator) for _ in range(2))
    pos = torch.arange(40)[None]
    config = ENCODINGS["kerple_log"].Config(n_heads=2)
    encodings = {"polynomial": NoPE(NoPE.Config()), "relative": XPos(XPos.Config(head_dim=8))}
    encoding = encodings.get(kernel) or ENCODINGS["kerple_log"](config)
    made = plan(Context(q, k, pos, pos), encoding, 0.05, causal=True, kernels=(kernel,)).with_all_fast()
    found = certified_plan([(0, head) for head in made.heads], 0.05, 40, 40)
    assert found is not None
    return found


def of_kernel(name: str, n: int = 24) -> Certified:
    """A certificate of the extreme eigenvalues of the first kernel of an encoding."""
    encoding = ENCODINGS[name](ENCODINGS[name].Config())
    return certified_kernel(encoding_kernels(encoding, n, 2, 16, True)[0])


def of_audit(rotary: dict[str, Any], applied: dict[str, Any]) -> Certified:
    """A certificate of the audit of a model that declares one rotation and applies another."""
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**SIZES, rope_parameters=rotary)).eval()
    model.model.rotary_emb = LlamaRotaryEmbedding(LlamaConfig(**SIZES, rope_parameters=applied))
    return certified_audit(model, audit(model, length=32, reach=False, watch=unwatched))


MADE = {
    "attention": lambda: of_plan("polynomial"),
    "attention by FFT": lambda: of_plan("fft"),
    "attention by FFT of unrotated vectors": lambda: of_plan("relative"),
    "eigenvalues": lambda: of_kernel("alibi"),
    "eigenvalues of a rotation": lambda: of_kernel("rope"),
    "audit": lambda: of_audit(PLAIN, PLAIN),
    "audit of Llama 3's scaling": lambda: of_audit(LLAMA3, LLAMA3),
    "audit that differs": lambda: of_audit(PLAIN, PLAIN | {"rope_theta": 10000.0}),
}


@cache
def text(name: str) -> str:
    """One of the certificates as its file holds it."""
    with TemporaryDirectory() as folder:
        given = Path(folder) / "config.json"
        given.write_text("{}")
        write_certificate(Path(folder) / "cert.json", MADE[name](), name, [given])
        return (Path(folder) / "cert.json").read_text()


def read(name: str) -> dict[str, Any]:
    """One of the certificates, to be changed."""
    return json.loads(text(name))
