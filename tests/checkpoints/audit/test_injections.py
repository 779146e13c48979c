"""Faults of many kinds, each in at least two families: code, layers and heads of what is found."""

import sys
from functools import cache

import pytest
import torch
from tests.checkpoints.audit.families import FAMILIES, LATENT, LENGTH, ODD, SIZES, WINDOWED, YARN, build
from tests.checkpoints.audit.injections import (
    at_kernel,
    attending,
    in_head,
    later,
    looked_up,
    masked,
    options,
    rotating,
    sinusoidal,
    turned,
)
from tests.checkpoints.audit.museum_faults import dropped, sunk
from tests.checkpoints.audit.zoo import Variant
from tests.checkpoints.audit.zoo import build as build_small
from tests.checkpoints.audit.zoo import families as heads_of

from spectrope.checkpoints.audit import audit

EVERY = {0, 1}
MORE = {
    "capped": lambda: build("Gemma2", **WINDOWED, attn_logit_softcapping=30.0),
    "lower cap": lambda: build("Gemma2", **WINDOWED, attn_logit_softcapping=5.0),
    "latent YaRN": ODD["latent, YaRN"],
    "latent of V2": lambda: build(
        "DeepseekV2", **SIZES | LATENT, rope_parameters=YARN | {"mscale": 1.0, "mscale_all_dim": 1.0}
    ),
    "every table": ODD["a table in every layer"],
}


def model_of(name):
    known = FAMILIES | MORE
    return known[name]() if name in known else build_small(Variant(name, heads_of()[name]))


@cache
def passes(name):
    """Whether the unmodified model matches."""
    return audit(model_of(name), length=LENGTH).ok


def scaled(change, layers=()):
    return options(lambda given: {"scaling": change(given["scaling"])}, layers)


def biased(change, layers=(), stack=None):
    """Change T5's bias on its way to the kernel."""

    def changed(given):
        bias = given.get("position_bias")
        return {} if bias is None else {"position_bias": change(bias)}

    return options(changed, layers)


def one_head(head, drawn):
    """Masks of four heads, one of which is another."""

    def allowed(lag):
        heads = [drawn(lag) if h == head else lag >= 0 for h in range(4)]
        return torch.stack(heads)

    return allowed


def keys(by):
    return lambda own, q, k, c, s: (own(q, k, c, s)[0], own(q, k, *later(c, s, by))[1])


def key_head(head, change):
    def rotate(own, q, k, c, s):
        a, b = own(q, k, c, s)
        return a, in_head(b, head, change(own, q, k, c, s)[1])

    return rotate


def query_head(head, change):
    def rotate(own, q, k, c, s):
        a, b = own(q, k, c, s)
        return in_head(a, head, change(own, q, k, c, s)[0]), b

    return rotate


def other_base(own, q, k, c, s):
    d = c.shape[-1]
    frequencies = 1000.0 ** (-torch.arange(0, d, 2) / d)
    angles = (torch.arange(c.shape[-2])[:, None] * torch.cat([frequencies, frequencies]))[None]
    return own(q, k, angles.cos(), angles.sin())


def at(places):
    def rotate(own, q, k, c, s):
        rows = places(torch.arange(c.shape[-2]))
        return own(q, k, c[..., rows, :], s[..., rows, :])

    return rotate


def wrapped(own, q, k, c, s):
    t = torch.arange(c.shape[-2])[:, None]
    angles = torch.atan2(s[..., 1:2, :], c[..., 1:2, :]) * torch.where(t < 64, t, t - 128)
    return own(q, k, angles.cos(), angles.sin())


def in_float16(own, q, k, c, s):
    t = torch.arange(c.shape[-2])[:, None]
    angles = (torch.atan2(s[..., 1:2, :], c[..., 1:2, :]) * t).half().float()
    return own(q, k, angles.cos(), angles.sin())


def normalised_late(model, patch):
    """The norms of queries and keys move behind the rotation."""
    waiting = []
    for name, module in model.named_modules():
        if name.endswith("self_attn"):
            module.late_q_norm, module.late_k_norm = module.q_norm, module.k_norm
            module.q_norm, module.k_norm = torch.nn.Identity(), torch.nn.Identity()
            module.register_forward_pre_hook(lambda one, _: waiting.append(one))
    at_kernel(lambda q, k, v: (waiting[-1].late_q_norm(q), waiting[-1].late_k_norm(k), v))(model, patch)


def without_is_causal(model, patch):
    for module in model.modules():
        if getattr(module, "is_causal", False):
            module.is_causal = False


def halves_swapped(table):
    return table.roll(table.shape[1] // 2, 1)


def in_turns(table):
    half = table.shape[1] // 2
    return table.view(-1, 2, half).transpose(1, 2).reshape(len(table), -1)


def seeing_all(own, q, k, v, mask, given):
    return own(q, k, v, torch.ones(1, 1, q.shape[2], k.shape[2], dtype=torch.bool))


def heads_in_turns(own, q, k, v, mask, given):
    k, v = (x.repeat(1, q.shape[1] // x.shape[1], 1, 1) for x in (k, v))
    logits = q @ k.mT * given["scaling"]
    hidden = torch.ones_like(logits[0, 0], dtype=torch.bool).triu(1)
    return (logits.masked_fill(hidden, -torch.inf).softmax(-1) @ v).transpose(1, 2), None


def over_queries(own, q, k, v, mask, given):
    groups = q.shape[1] // k.shape[1]
    logits = q @ k.repeat_interleave(groups, 1).mT * (given["scaling"] or q.shape[-1] ** -0.5)
    return (logits.softmax(-2) @ v.repeat_interleave(groups, 1)).transpose(1, 2), None


def other_values_in_head_1(own, q, k, v, mask, given):
    out = own(q, k, v, mask)[0]
    return in_head(out.transpose(1, 2), 1, 0.5 * out.transpose(1, 2)).transpose(1, 2), None


def other_values(own, q, k, v, mask, given):
    return own(q, k, v.roll(1, -1) if v.shape[-1] < v.shape[-2] else v, mask)


def turned_after(own, q, k, v, mask, given):
    return turned(own(q, k, v, mask)[0].transpose(1, 2)).transpose(1, 2), None


def normalised_within(own, q, k, v, mask, given):
    return own(*(x / x.square().mean(-1, keepdim=True).sqrt() for x in (q, k)), v, mask)


def heads_reversed(own, q, k, v, mask, given):
    return own(q, k, v, mask)[0].flip(2), None


def without(norm):
    """The norm of queries or keys is no more there."""

    def inject(model, patch):
        for module in model.modules():
            if hasattr(module, norm):
                setattr(module, norm, torch.nn.Identity())

    return inject


def skipped(norm):
    """The norm of queries or keys is there, but does not run."""

    def inject(model, patch):
        for module in model.modules():
            if hasattr(module, norm):
                patch.setattr(getattr(module, norm), "_call_impl", lambda x: x)

    return inject


def halves_of(change):
    """Another `rotate_half`."""

    def inject(model, patch):
        homes = {sys.modules[type(module).__module__] for module in model.modules()}
        for code in homes:
            if hasattr(code, "rotate_half"):
                patch.setattr(code, "rotate_half", change)

    return inject


def unsigned(x):
    return torch.cat(x.chunk(2, -1)[::-1], -1)


def neighbours(x):
    return torch.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2)


def growing(x):
    return x * (1 + 0.01 * torch.arange(x.shape[2]))[:, None]


ROTARY = ("llama-default", "qwen3")
LATENTS = ("latent YaRN", "latent of V2")
T5S = ("t5", "every table")
# Name: fault, families, code, layers and heads of the findings.
FAULTS = {
    "no causal mask": (masked(lambda lag: lag < 9999), ("llama-default", "gpt2"), "SPE201", EVERY, {None}),
    "one key ahead in layer 1": (
        masked(lambda n: n >= -1, [1]),
        ("qwen3", "gpt_neox", "whisper"),
        "SPE201",
        {1},
        {None},
    ),
    "head 2 sees all": (
        masked(one_head(2, lambda n: n < 9999)),
        ("llama-default", "olmo2"),
        "SPE201",
        EVERY,
        {2},
    ),
    "is_causal lost": (without_is_causal, ("llama-default", "gpt_neox"), "SPE201", EVERY, {None}),
    "an encoder made causal": (masked(lambda n: n >= 0), ("bert", "roberta"), "SPE201", EVERY, {None}),
    "blocks instead of all keys": (
        masked(lambda n: (n >= 0) & (n < 32)),
        ("llama-default", "gpt2"),
        "SPE202",
        EVERY,
        {None},
    ),
    "window one short": (
        masked(lambda n: (n >= 0) & (n < 23), [0]),
        ("mistral", "gemma2"),
        "SPE202",
        {0},
        {None},
    ),
    "keys one ahead": (rotating(keys(1)), ROTARY, "SPE108", EVERY, {None}),
    "keys five ahead in layer 1": (rotating(keys(5), [1]), ROTARY, "SPE108", {1}, {None}),
    "key head 1 two ahead": (rotating(key_head(1, keys(2))), ROTARY, "SPE108", EVERY, {1}),
    "rotation of queries alone": (
        rotating(lambda own, q, k, c, s: (own(q, k, c, s)[0], k)),
        ROTARY,
        "SPE109",
        EVERY,
        {None},
    ),
    "key head 0 not rotated": (
        rotating(key_head(0, lambda own, q, k, c, s: (q, k))),
        ROTARY,
        "SPE109",
        EVERY,
        {0},
    ),
    "query head 3 of another base": (rotating(query_head(3, other_base)), ROTARY, "SPE101", EVERY, {3}),
    "keys turned backwards": (
        rotating(lambda own, q, k, c, s: (own(q, k, c, s)[0], own(q, k, c, -s)[1])),
        ROTARY,
        "SPE107",
        EVERY,
        {None},
    ),
    "positions restart in keys alone": (
        rotating(lambda own, q, k, c, s: (own(q, k, c, s)[0], at(lambda t: t % 32)(own, q, k, c, s)[1])),
        ROTARY,
        "SPE111",
        EVERY,
        {None},
    ),
    "positions wrap at 64": (rotating(wrapped), ROTARY, "SPE111", EVERY, {None}),
    "angles in float16": (rotating(in_float16), ROTARY, "SPE106", EVERY, {None}),
    "values rotated in layer 1": (
        at_kernel(lambda q, k, v: (q, k, turned(v)), [1]),
        ("llama-default", "bert", "mobilebert"),
        "SPE112",
        {1},
        {None},
    ),
    "rotation before the norms": (normalised_late, ("qwen3", "gemma3"), "SPE113", None, {None}),
    "scale of the model's width": (
        scaled(lambda _: 0.125),
        ("llama-default", "gpt2"),
        "SPE404",
        EVERY,
        {None},
    ),
    "multiplier ignored": (scaled(lambda _: 0.25), ("gemma2", "granite"), "SPE404", EVERY, {None}),
    "mscale left out": (scaled(lambda _: 32**-0.5), LATENTS, "SPE404", EVERY, {None}),
    "mscale squared": (
        scaled(lambda s: s * 1.13863**2),
        LATENTS,
        "SPE404",
        EVERY,
        {None},
    ),
    "T5 scaled": (scaled(lambda _: 0.25), T5S, "SPE404", None, {None}),
    "head 1 scaled": (
        at_kernel(lambda q, k, v: (in_head(q, 1, 2 * q), k, v)),
        ("llama-default", "bert"),
        "SPE404",
        EVERY,
        {1},
    ),
    "queries scaled twice": (
        at_kernel(lambda q, k, v: (q / 4, k, v)),
        ("llama-default", "opt"),
        "SPE404",
        EVERY,
        {None},
    ),
    "cap dropped": (
        options(lambda _: {"softcap": None}),
        ("capped", "lower cap"),
        "SPE405",
        EVERY,
        {None},
    ),
    "sinks dropped": (
        sunk(dropped),
        ("gpt_oss", "granite_swa"),
        "SPE406",
        EVERY,
        {None},
    ),
    "function sees all keys": (attending(seeing_all), ("llama-default", "gpt2"), "SPE201", EVERY, {None}),
    "function without its bias": (
        attending(lambda own, q, k, v, mask, given: own(q, k, v, mask, position_bias=None)),
        ("t5", "umt5"),
        "SPE110",
        None,
        {None},
    ),
    "function of another scale": (
        attending(lambda own, q, k, v, mask, given: own(q, k, v, mask, scaling=0.5)),
        ("granite", "bert"),
        "SPE404",
        EVERY,
        {None},
    ),
    "key heads read in turns": (
        attending(heads_in_turns),
        ("llama-default", "qwen2"),
        "SPE407",
        EVERY,
        {None},
    ),
    "softmax over queries": (attending(over_queries), ("bert", "roberta"), "SPE407", EVERY, {None}),
    "weights of head 1 halved": (
        attending(other_values_in_head_1),
        ("bert", "qwen3"),
        "SPE407",
        EVERY,
        {1},
    ),
    "values of other coordinates": (attending(other_values), ("bert", "qwen3"), "SPE407", EVERY, {None}),
    "outputs turned": (attending(turned_after), ("llama-default", "gpt2"), "SPE407", EVERY, {None}),
    "normalised in the function": (
        attending(normalised_within),
        ("llama-default", "bert"),
        "SPE407",
        EVERY,
        {None},
    ),
    "heads reversed in the function": (
        attending(heads_reversed),
        ("qwen2", "bert"),
        "SPE407",
        EVERY,
        {None},
    ),
    "q_norm lost": (without("q_norm"), ("qwen3", "olmo2"), "SPE114", None, {None}),
    "k_norm skipped": (skipped("k_norm"), ("qwen3", "gemma3"), "SPE114", None, {None}),
    "sine without its minus sign": (
        halves_of(unsigned),
        ("llama-default", "gemma2"),
        "SPE109",
        EVERY,
        {None},
    ),
    "neighbours paired, angles in halves": (
        halves_of(neighbours),
        ("llama-default", "gpt_neox"),
        "SPE104",
        EVERY,
        {None},
    ),
    "keys grow": (
        at_kernel(lambda q, k, v: (q, growing(k), v)),
        ("qwen2", "bert"),
        "SPE403",
        EVERY,
        {None},
    ),
    "rotation starts at 3": (
        rotating(lambda own, q, k, c, s: own(q, k, *later(c, s, 3))),
        ROTARY,
        "SPE402",
        EVERY,
        {None},
    ),
    "values of key-value head 1 rotated": (
        at_kernel(lambda q, k, v: (q, k, in_head(v, 1, turned(v)))),
        ("llama-default", "qwen2"),
        "SPE112",
        EVERY,
        {1},
    ),
    "sign of T5's biases": (biased(lambda b: -b), T5S, "SPE303", None, {None}),
    "T5's biases mirrored heads": (biased(lambda b: b.flip(1)), T5S, "SPE303", None, {0, 1, 2, 3}),
    "T5's head 2 without biases": (biased(lambda b: in_head(b, 2, 0 * b)), T5S, "SPE303", None, {2}),
    "T5's biases absent in layer 1": (biased(lambda b: 0 * b, [1]), T5S, "SPE110", {1}, {None}),
    "table entered from row 1": (
        looked_up(lambda rows: rows + 1),
        ("gpt2", "bert"),
        "SPE402",
        {None},
        {None},
    ),
    "table restarts": (looked_up(lambda rows: rows % 32), ("gpt2", "bert"), "SPE111", {None}, {None}),
    "sines and cosines in turns": (sinusoidal(in_turns), ("marian", "m2m_100"), "SPE401", {None}, {None}),
    "cosines before sines": (sinusoidal(halves_swapped), ("pegasus", "xglm"), "SPE401", {None}, {None}),
    "sinusoids of the next position": (
        sinusoidal(lambda w: w.roll(-1, 0)),
        ("marian", "pegasus"),
        "SPE402",
        {None},
        {None},
    ),
}
CASES = [(name, family) for name, (_, families, *_) in FAULTS.items() for family in families]


@pytest.mark.sampled(most=12)
@pytest.mark.parametrize(("name", "family"), CASES)
def test_code_layers_and_heads_of_a_fault_are_named(name, family, monkeypatch):
    inject, _, code, layers, heads = FAULTS[name]
    assert passes(family)
    model = model_of(family)
    inject(model, monkeypatch)
    records = audit(model, length=LENGTH).records
    assert {one.code for one in records} == {code}
    assert {one.head for one in records} == heads
    assert layers is None or {one.layer for one in records} == layers


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("outputs turned", "as where outputs are changed after softmax"),
        ("normalised in the function", "weights as of queries and keys that are normalised in the function"),
        ("heads reversed in the function", "heads have the weights of heads 3, 2, 1, 0"),
        ("weights of head 1 halved", "weights sum to up to 1"),
    ],
)
def test_what_the_weights_of_an_attention_function_look_like_is_said(name, said, monkeypatch):
    inject, (family, _), *_ = FAULTS[name]
    model = model_of(family)
    inject(model, monkeypatch)
    assert said in audit(model, length=LENGTH).records[0].message
