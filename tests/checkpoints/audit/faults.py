"""Faults that silently change what a model applies, each injected into a model that passes its audit."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from tests.checkpoints.audit.families import FAMILIES, LENGTH, YARN, llama
from transformers import StaticCache
from transformers.models.bloom import modeling_bloom
from transformers.models.cohere import modeling_cohere
from transformers.models.llama import modeling_llama

from spectrope.checkpoints.audit import Audit, audit


@dataclass(frozen=True)
class Fault:
    """One seeded fault and what the audit must say of it.

    Args:
        family: Whose model it goes into.
        inject: Changes the model.
        layers: Names of the layers, or of what else, that must be found; all others must match.
        what: What the finding is about.
        says: Part of its text.
    """

    family: str
    inject: Callable[[Any, Any], None]
    layers: tuple[str, ...]
    what: str
    says: str


def rotary(model: Any, **parameters: Any) -> None:
    """Give the model the rotary module of other parameters, as a fork that reads its config wrongly would."""
    other = type(model.config)(**(model.config.to_dict() | {"rope_parameters": parameters}))
    model.model.rotary_emb = type(model.model.rotary_emb)(other)


def base_lost(model: Any, patch: Any) -> None:
    model.config.rope_parameters["rope_theta"] = 10000.0
    rotary(model, rope_type="default", rope_theta=10000.0)
    model.config.rope_parameters["rope_theta"] = 500000.0


def no_attention_factor(model: Any, patch: Any) -> None:
    model.model.rotary_emb.attention_scaling = 1.0


def swapped_betas(model: Any, patch: Any) -> None:
    rotary(model, **(YARN | {"beta_fast": YARN["beta_slow"], "beta_slow": YARN["beta_fast"]}))


def swapped_pairing(model: Any, patch: Any) -> None:
    def interleaved(q: Any, k: Any, cos: Any, sin: Any) -> Any:
        m = cos.shape[-1] // 2
        wide = [x[..., :m].repeat_interleave(2, -1) for x in (cos, sin)]
        return modeling_cohere.apply_rotary_pos_emb(q, k, *wide)

    patch.setattr(modeling_llama, "apply_rotary_pos_emb", interleaved)


def inverted_pattern(model: Any, patch: Any) -> None:
    for layer in model.model.layers:
        layer.self_attn.use_rope = not layer.self_attn.use_rope


def swapped_bases(model: Any, patch: Any) -> None:
    table = model.model.rotary_emb
    sliding, full = table.sliding_attention_inv_freq.clone(), table.full_attention_inv_freq.clone()
    table.sliding_attention_inv_freq, table.full_attention_inv_freq = full, sliding


def wrong_fraction(model: Any, patch: Any) -> None:
    parameters = model.config.rope_parameters | {"partial_rotary_factor": 0.5}
    other = type(model.config)(**(model.config.to_dict() | {"rope_parameters": parameters}))
    model.gpt_neox.rotary_emb = type(model.gpt_neox.rotary_emb)(other)


def angles_in_bfloat16(model: Any, patch: Any) -> None:
    def forward(x: torch.Tensor, position_ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        frequencies = model.model.rotary_emb.inv_freq.bfloat16()
        angles = (position_ids[..., None].bfloat16() * frequencies).float()
        angles = torch.cat([angles, angles], -1)
        return angles.cos(), angles.sin()

    patch.setattr(model.model.rotary_emb, "forward", forward)


def reused_table(model: Any, patch: Any) -> None:
    """Layer 1 takes its table from a cache whose key leaves out the base."""
    other = llama(rope_parameters={"rope_type": "default", "rope_theta": 1e4}).model.rotary_emb

    def swap(_: Any, args: Any, given: dict[str, Any]) -> Any:
        states, positions = args[0], given["position_ids"]
        return args, given | {"position_embeddings": other(states, positions)}

    model.model.layers[1].register_forward_pre_hook(swap, with_kwargs=True)


def naive_slopes(model: Any, patch: Any) -> None:
    patch.setattr(
        modeling_bloom,
        "_get_alibi_slopes",
        lambda n, device: 2.0 ** (-8.0 * torch.arange(1, n + 1, device=device) / n),
    )


def no_offset(model: Any, patch: Any) -> None:
    model.model.decoder.embed_positions.offset = 0


def causal_buckets(model: Any, patch: Any) -> None:
    model.encoder.block[0].layer[0].SelfAttention.is_decoder = True


def two_way_buckets(model: Any, patch: Any) -> None:
    model.decoder.block[0].layer[0].SelfAttention.is_decoder = False


def wide_window(model: Any, patch: Any) -> None:
    """The window of one layer is the library's default, not the checkpoint's."""
    model.config.sliding_window = 25
    patch.setattr(
        model.config, "to_dict", lambda: type(model.config).to_dict(model.config) | {"sliding_window": 24}
    )


EVERY = ("layer 0", "layer 1")
FAULTS: dict[str, Fault] = {
    "base lost": Fault("llama-default", base_lost, EVERY, "base", "500000 declared, 10000 effective"),
    "linear factor ignored": Fault(
        "llama-linear",
        lambda model, _: rotary(model, rope_type="default", rope_theta=1e4),
        EVERY,
        "scaling",
        "linear by 4 declared, base 10000 effective",
    ),
    "YaRN's attention factor missing": Fault(
        "llama-yarn", no_attention_factor, EVERY, "attention factor", "1.1386 declared, 1 effective"
    ),
    "YaRN's betas swapped": Fault(
        "llama-yarn", swapped_betas, EVERY, "scaling", "reversed ramp by 4 effective"
    ),
    "pairing swapped": Fault("llama-default", swapped_pairing, EVERY, "pairing", "halves declared, adjacent"),
    "NoPE pattern inverted": Fault(
        "smollm3",
        inverted_pattern,
        tuple(f"layer {n}" for n in range(4)),
        "encoding",
        "rotary, base 2e+06 declared, none effective",
    ),
    "sliding and global bases swapped": Fault(
        "gemma3", swapped_bases, ("layer 0", "layer 1", "layer 2"), "base", "10000 declared, 1e+06 effective"
    ),
    "rotated fraction wrong": Fault(
        "gpt_neox", wrong_fraction, EVERY, "rotated fraction", "0.25 declared, 0.5 effective"
    ),
    "angles computed in bfloat16": Fault(
        "llama-default", angles_in_bfloat16, EVERY, "angles", "as when computed in low precision"
    ),
    "rotary table reused under a wrong base": Fault(
        "llama-default", reused_table, ("layer 1",), "base", "500000 declared, 10000 effective"
    ),
    "ALiBi slopes of the other convention": Fault(
        "bloom-6-heads", naive_slopes, EVERY, "slopes", "0.25 in head 0 declared, 0.39685"
    ),
    "OPT's offset of 2 lost": Fault(
        "opt", no_offset, ("embeddings of decoder.layers.0",), "first position", "row 2 declared, row 0"
    ),
    "causal buckets in T5's encoder": Fault(
        "t5", causal_buckets, ("layer encoder 0", "layer encoder 1"), "buckets", "past only"
    ),
    "two-way buckets in T5's decoder": Fault(
        "t5", two_way_buckets, ("layer decoder 0", "layer decoder 1"), "buckets", "both ways"
    ),
    "window one too wide": Fault(
        "mistral", wide_window, EVERY, "mask", "window 24 declared, causal window 25"
    ),
}


def padding_not_skipped(model: Any, patch: Any) -> None:
    table = model.model.decoder.embed_positions

    def forward(mask: torch.Tensor, past: int = 0, position_ids: Any = None) -> torch.Tensor:
        rows = torch.arange(past, mask.shape[1], device=mask.device)[None] + table.offset
        return torch.nn.functional.embedding(rows, table.weight)

    patch.setattr(table, "forward", forward)


def restarting_biases(model: Any, patch: Any) -> None:
    attention = model.decoder.block[0].layer[0].SelfAttention
    own = attention.compute_bias
    patch.setattr(attention, "compute_bias", lambda i, j, device=None, past_seen_tokens=0: own(i, j, device))


def restarting_positions(model: Any, patch: Any) -> None:
    forward = model.model.rotary_emb.forward
    patch.setattr(
        model.model.rotary_emb,
        "forward",
        lambda x, position_ids: forward(x, position_ids - position_ids.min()),
    )


def counted_from_the_end(model: Any, patch: Any) -> None:
    """Steps of decoding take their position from the number of keys, which a static cache has in advance."""
    forward = model.model.forward

    def counting(*args: Any, position_ids: Any = None, past_key_values: Any = None, **given: Any) -> Any:
        if isinstance(past_key_values, StaticCache) and (held := past_key_values.layers[0]).is_initialized:
            position_ids = torch.full_like(position_ids, held.keys.shape[2] - 1)
        return forward(*args, position_ids=position_ids, past_key_values=past_key_values, **given)

    patch.setattr(model.model, "forward", counting)


def unwritten_keys_seen(model: Any, patch: Any) -> None:
    """A decoded token sees everything before it, and a static cache has no other end."""
    build = modeling_llama.create_causal_mask

    def seeing(*args: Any, past_key_values: Any = None, **given: Any) -> Any:
        mask = build(*args, past_key_values=past_key_values, **given)
        static = isinstance(past_key_values, StaticCache)
        return torch.ones_like(mask) if static and mask is not None and mask.shape[-2] == 1 else mask

    patch.setattr(modeling_llama, "create_causal_mask", seeing)


CACHED = (
    "serving mode cached decoding",
    "serving mode static cache",
    f"serving mode one token after {LENGTH - 2}",
    "serving mode chunked prefill",
)

SERVING_FAULTS: dict[str, Fault] = {
    "left padding not skipped": Fault(
        "opt",
        padding_not_skipped,
        ("serving mode left padding",),
        "position of token 0",
        "row 2 expected, row 17 effective",
    ),
    "positions restarting in cached decoding": Fault(
        "llama-default",
        restarting_positions,
        CACHED,
        "kernel of layer 0",
        "at query",
    ),
    "T5's biases restarting in cached decoding": Fault(
        "t5", restarting_biases, CACHED[:2], "kernel of layer decoder 0", "at query"
    ),
    "positions counted from the end of a static cache": Fault(
        "llama-default",
        counted_from_the_end,
        ("serving mode static cache",),
        "kernel of layer 0",
        "at query",
    ),
    "unwritten keys of a static cache seen": Fault(
        "llama-default",
        unwritten_keys_seen,
        ("serving mode static cache",),
        "mask of layer 0",
        "one with keys that are not written yet",
    ),
}


def row(name: str, found: Audit) -> str:
    """The fault's row in the documentation's table: where it was found, and what was said of it."""
    fault = (FAULTS | SERVING_FAULTS)[name]
    where = list(dict.fromkeys(where for where, _ in found.findings))
    about = next(str(finding) for _, finding in found.findings if finding.what == fault.what)
    return f"| {name} | {fault.family} | {', '.join(where)} | {about} |"


def detect(name: str, patch: pytest.MonkeyPatch) -> Audit:
    """The audit of a model into which the fault was injected."""
    fault = (FAULTS | SERVING_FAULTS)[name]
    model = FAMILIES[fault.family]()
    fault.inject(model, patch)
    return audit(model, length=LENGTH, serving_modes=name in SERVING_FAULTS)


if __name__ == "__main__":
    for name in FAULTS | SERVING_FAULTS:
        with pytest.MonkeyPatch.context() as patch:
            print(row(name, detect(name, patch)))
