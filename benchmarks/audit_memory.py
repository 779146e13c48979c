"""The estimate of an audit's memory against the resident memory that the audit really adds.

Models of two layers and four heads with random weights, each audited in a process of its own. Resident memory
is sampled every 2 ms, from the end of a short audit of the same model. Run as
`python -m benchmarks.audit_memory`.

`python -m benchmarks.audit_memory folder` audits a Llama with 24 layers of width 1024 from a sharded folder
instead: once with all weights in memory, once with those of one layer. Resident memory is counted from after
the imports.

`python -m benchmarks.audit_memory returned` audits the six models of `benchmarks.audit` at 512 positions, in
all serving modes, in processes that return freed blocks to the system at once (glibc's `M_MMAP_THRESHOLD`),
which is slow. That shows how much memory is in use at a time. Beside it stands a forward pass of two
sequences of the same model, without its head.
"""

import ctypes
import json
import multiprocessing
import sys
import tempfile
import threading
from collections.abc import Callable
from typing import Any

import psutil
import torch
import transformers
from benchmarks.audit import AUDIT_LENGTH, AUDITED
from benchmarks.harness import peak_mib, store

import spectrope as sp
from spectrope.checkpoints.adapters import mapped
from spectrope.checkpoints.audit import capacity
from spectrope.core.peak import MIB

SIZES = {"vocab_size": 64, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
LLAMA = {**SIZES, "intermediate_size": 64, "num_key_value_heads": 2}
LARGE: dict[str, Any] = {
    "hidden_size": 1024,
    "intermediate_size": 2816,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "vocab_size": 32000,
}
LONG = 8192
M_MMAP_THRESHOLD, RETURNED = -3, 2**16  # Blocks from so many bytes on are returned when they are freed.
CASES: tuple[tuple[str, str, dict[str, Any], int], ...] = (
    ("Llama", "LlamaForCausalLM", LLAMA, 2048),
    ("Llama", "LlamaForCausalLM", LLAMA, 8192),
    ("GPT-2", "GPT2LMHeadModel", {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": LONG}, 6144),
    ("BERT", "BertModel", {**SIZES, "intermediate_size": 64, "max_position_embeddings": LONG}, 6144),
    ("BLOOM", "BloomForCausalLM", {"hidden_size": 64, "n_layer": 2, "n_head": 4}, 1024),
    ("BLOOM", "BloomForCausalLM", {"hidden_size": 64, "n_layer": 2, "n_head": 4}, 2048),
    ("MPT", "MptForCausalLM", {"d_model": 64, "n_layers": 2, "n_heads": 4, "max_seq_len": LONG}, 1536),
    ("T5", "T5EncoderModel", {"d_model": 64, "d_kv": 16, "d_ff": 64, "num_layers": 2, "num_heads": 4}, 1536),
)


def measured(architecture: str, fields: dict[str, Any], length: int) -> tuple[float, float]:
    """MiB by the estimate, and MiB that the audit added to the resident memory."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    cls = getattr(transformers, architecture)
    model = cls(cls.config_class(**fields)).eval()
    growths = []
    plain = capacity.peak_growth
    capacity.peak_growth = lambda run: growths.append(plain(run)) or growths[-1]
    options: dict[str, Any] = {"watch": sp.unwatched, "serving_modes": False}
    sp.audit(model, length=capacity.UNCHECKED + 8, **options)
    added = _added(lambda: sp.audit(model, length=length, **options))
    return capacity.OVERHEAD * sum(growths[-1].at(length).values()) / MIB, added


def folder_audited(folder: str, *, by_layer: bool) -> tuple[float, str]:
    """MiB that the audit of a folder adds with the weights, and its record."""
    torch.set_num_threads(1)
    cls: Any = transformers.LlamaForCausalLM
    sp.audit(cls(cls.config_class(**LLAMA)).eval(), length=64, watch=sp.unwatched)  # imports what it needs
    mapped.LARGE = 0 if by_layer else 2**62
    records: list[Any] = []
    options: dict[str, Any] = {"device": "cpu", "watch": sp.unwatched}
    added = _added(lambda: records.append(sp.audit(folder, length=512, **options)))
    return added, json.dumps(records[0].to_dict())


def both_ways() -> None:
    """Audit one folder with all weights in memory, and with those of one layer; store a row each."""
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**LARGE))
    layer, whole = (sum(x.nbytes for x in part.parameters()) / MIB for part in (model.model.layers[0], model))
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder, max_shard_size="300MB")
        del model
        found = {}
        for by_layer in (False, True):
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                found[by_layer] = pool.apply(folder_audited, (folder,), {"by_layer": by_layer})
    assert found[True][1] == found[False][1], "the records differ"
    rows = [
        {"label": label, "length": 512, "measured_mib": found[by_layer][0]}
        for label, by_layer in (("all weights", False), ("one layer", True))
    ]
    for row in rows:
        print(f"{row['label']:>12} {row['measured_mib']:>8.0f} MiB")
    store("audit_folder", rows, {"model_mib": whole, "layer_mib": layer})


def in_use(architecture: str, fields: dict[str, Any]) -> tuple[float, float]:
    """MiB in use at most in an audit, and in a forward pass of two sequences without the head."""
    ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, RETURNED)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    cls = getattr(transformers, architecture)
    model = cls(cls.config_class(**fields)).eval()
    found = sp.audit(model, length=64, watch=sp.unwatched)
    assert found.ok, "a model that applies what it declares does not match"
    ids = torch.zeros(2, AUDIT_LENGTH, dtype=torch.long)
    with torch.no_grad():
        forward = peak_mib(lambda: model.base_model(ids))
    audit = peak_mib(lambda: sp.audit(model, length=AUDIT_LENGTH, watch=sp.unwatched))
    if audit is None or forward is None:
        sys.exit("memory is measured on Linux with glibc alone")
    return audit, forward


def returned() -> None:
    """A row per model of `benchmarks.audit`."""
    rows = []
    for architecture, fields in AUDITED:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            audit, forward = pool.apply(in_use, (architecture, fields))
        rows.append({"label": architecture, "audit_mib": audit, "forward_mib": forward})
        print(f"{architecture:>20} {audit:>6.0f} MiB, a forward pass {forward:>6.0f} MiB", flush=True)
    store("audit_in_use", rows)


def _added(call: Callable[[], object]) -> float:
    process, ended = psutil.Process(), threading.Event()
    before = peak = process.memory_info().rss

    def sample() -> None:
        nonlocal peak
        while not ended.wait(0.002):
            peak = max(peak, process.memory_info().rss)

    sampler = threading.Thread(target=sample, daemon=True)
    sampler.start()
    call()
    ended.set()
    sampler.join()
    return (peak - before) / MIB


def main() -> None:
    """Print and store a row per case."""
    rows = []
    for label, architecture, fields, length in CASES:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            estimated, added = pool.apply(measured, (architecture, fields, length))
        rows.append({"label": label, "length": length, "estimated_mib": estimated, "measured_mib": added})
        print(f"{label:>6} {length:>5} {estimated:>8.0f} MiB {added:>8.0f} MiB {estimated / added:>6.2f}")
    store("audit_memory", rows)


if __name__ == "__main__":
    wanted, parts = sys.argv[1:] or [""], {"": main, "folder": both_ways, "returned": returned}
    if len(wanted) > 1 or wanted[0] not in parts:
        sys.exit(
            f"benchmarks.audit_memory takes {' or '.join(filter(None, parts))}, or nothing; got {wanted}"
        )
    parts[wanted[0]]()
