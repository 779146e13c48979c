"""A numerical contract: `released` is the public code, as an independent plain implementation has it.

The weights of the public architecture are loaded by name. Logits, loss, accuracy, gradients, what is dropped
where, and every protocol of ablation must then agree, to 1e-10 in float64 and to 1e-5 in float32.
"""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from tests.study.released import plain
from tests.study.released.plain import Kind, Sizes
from torch.testing import assert_close

from spectrope.core.noise import Noise
from spectrope.encodings.per_head import Group, PerHead
from spectrope.lab.ablation.engine import ablated_logits
from spectrope.lab.ablation.heads import ablated
from spectrope.lab.ablation.protocols import PROTOCOLS
from spectrope.lab.ablation.sweep import sweep
from spectrope.lab.evaluation.score import IGNORED, counted_labels, score
from spectrope.lab.training.loop import accumulate
from spectrope.lab.training.scales import experiment
from spectrope.models.decoder import Decoder
from spectrope.study.claims.rope_with_absolute import RoPEWithAbsolute
from spectrope.tasks.base import Batch

CLOSE = {torch.float64: {"rtol": 0, "atol": 1e-10}, torch.float32: {"rtol": 0, "atol": 1e-5}}
DTYPES = pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
# As many heads and latents as in Table 4, each half as wide: heads 8 to 15 are beyond the latents.
SIZES = Sizes(words=41, length=20, width=32, layers=3, heads=16, head=4, hidden=24, latent=32, rotary=4)
RATE = 0.25  # Which noise of 16 bits has exactly.

KINDS = {
    "absolute": Kind("absolute"),
    "relative": Kind("relative"),
    "alibi": Kind("alibi"),
    "nope": Kind("nope"),
    "rope": Kind("rope", rotated=16),
    "random": Kind("random"),
    "partial, 1": Kind("partial", rotated=1),
    "partial, 5": Kind("partial", rotated=5),
    "partial, 16": Kind("partial", rotated=16),
    "rope+absolute": Kind("rope", rotated=16),
    "sum": Kind("rope", rotated=16),
    "mla": Kind("mla", latent=True),
}
NAMES = {"absolute": "sinusoidal", "relative": "t5"}
EVERY = pytest.mark.parametrize("name", KINDS)


def released(name: str):
    """The experiment at the paper's scale, as the command line and the claims make it."""
    if name == "rope+absolute":
        return RoPEWithAbsolute().arms("released", "paper", 0)["both"]
    if name.startswith("partial"):
        encoding = PerHead.Config(n_heads=16, groups=(Group(heads=KINDS[name].rotated),))
        return experiment("distance", encoding, scale="paper", condition="released")
    return experiment("distance", NAMES.get(name, name), scale="paper", condition="released")


def config_of(name: str):
    """Its architecture, smaller."""
    model = released(name).model
    attention = model.attention
    if KINDS[name].latent:
        attention = replace(
            attention, latent=SIZES.latent, query_latent=SIZES.latent, rotary_dim=SIZES.rotary
        )
    return replace(
        model,
        vocabulary=SIZES.words,
        n_labels=SIZES.length,
        max_length=SIZES.length,
        d_model=SIZES.width,
        n_layers=SIZES.layers,
        n_heads=SIZES.heads,
        head_dim=SIZES.head,
        d_ff=SIZES.hidden,
        dropout=RATE,
        attention=attention,
    )


def drawn(name: str, dtype: torch.dtype) -> plain.Weights:
    """Random weights, so large that everything matters and so small that class logits are of order 1.

    With this seed no input of a ReLU lies within 1e-5 of 0, where rounding would switch its gradient.
    """
    generator = torch.Generator().manual_seed(10)
    found = {}
    for weight, shape in plain.shapes(KINDS[name], SIZES).items():
        scale = 1.0 if weight.startswith(("embedding", "positions")) else 0.18
        values = scale * torch.randn(shape, generator=generator, dtype=torch.float64)
        found[weight] = (values + (".norm" in weight and weight.endswith("weight"))).to(dtype)
    return found


def place_of(weight: str, name: str) -> tuple[str, slice]:
    """The parameter of ours that holds a weight of the public architecture, and its rows there."""
    inner, whole = SIZES.heads * SIZES.head, slice(None)
    outside = {"embedding": "tokens", "norm": "norm", "classifier": "classifier"}
    first, *rest = weight.split(".")
    if first == "positions":
        return ("encodings.0._terms.0._terms.1.table" if name == "mla" else "encodings.0.table"), whole
    if first in outside:
        return ".".join([outside[first], *rest]), whole
    layer, part, *rest = rest
    if part == "attention" and rest == ["relative"]:
        return f"encodings.{layer}.table", whole
    block = f"blocks.{layer}"
    parts = {"norm1": "attention_norm", "norm2": "ff_norm", "linear1": "up", "linear2": "down"}
    if part in parts:
        return f"{block}.{parts[part]}.{rest[0]}", whole
    role, kind = rest
    rows = {
        "output": ("out", whole),
        "query": ("heads.qkv", slice(0, inner)),
        "key": ("heads.qkv", slice(inner, 2 * inner)),
        "value": ("heads.qkv", slice(2 * inner, 3 * inner)),
        "query_down": ("heads.query_down.0", whole),
        "query_up": ("heads.query_up", slice(0, inner)),
        "query_rotary": ("heads.query_up", slice(inner, inner + SIZES.rotary)),
        "key_value_down": ("heads.key_value_down.0", whole),
        "key_up": ("heads.key_value_up", slice(0, inner)),
        "value_up": ("heads.key_value_up", slice(inner, 2 * inner)),
        "key_rotary": ("heads.rotary_key", whole),
    }
    module, taken = rows[role]
    return f"{block}.{module}.{kind}", taken


def loaded(name: str, weights: plain.Weights, impl: str = "fastest") -> Decoder:
    """Our decoder with these weights: every one of its parameters is filled, by name, from one of theirs."""
    dtype = weights["embedding.weight"].dtype
    model = Decoder(config_of(name), impl).to(dtype).eval()
    with torch.no_grad():
        parameters = {key: value.fill_(torch.nan) for key, value in model.named_parameters()}
        for weight, values in weights.items():
            key, rows = place_of(weight, name)
            parameters[key][rows] = values
    assert not any(values.isnan().any() for values in parameters.values())
    return model


def examples(n: int = 24, seed: int = 0) -> Batch:
    """Words of various lengths, padded with 0, and labels of which some are 0."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(3, SIZES.length + 1, (n,), generator=generator)
    lengths[0] = SIZES.length
    words = torch.randint(1, SIZES.words, (n, SIZES.length), generator=generator)
    words[torch.arange(SIZES.length) >= lengths[:, None]] = 0
    labels = torch.randint(0, SIZES.length, (n,), generator=generator)
    labels[::5] = 0
    return Batch(words, labels, lengths)


class Masks(Noise):
    """Noise whose masks are those of the plain implementation, in the order in which it asked for them."""

    def __init__(self) -> None:
        super().__init__(RATE, 0, torch.device("cpu"))
        self.drawn: list[tuple[str, torch.Tensor]] = []
        self.generator = torch.Generator().manual_seed(8)
        self.used = 0

    def plainly(self, site: str, x: torch.Tensor) -> torch.Tensor:
        """What the plain implementation drops."""
        kept = (torch.rand(x.shape, generator=self.generator) >= RATE).to(x.dtype)
        self.drawn.append((site, kept))
        return x * kept / (1 - RATE)

    def keep(self, shape: torch.Size, dtype: torch.dtype) -> torch.Tensor:
        _, kept = self.drawn[self.used]
        self.used += 1
        assert kept.shape == shape
        return kept.clone()


def our_loss(model: Decoder, batch: Batch, noise: Noise | None = None) -> torch.Tensor:
    labels = counted_labels(model, batch.labels)
    return F.cross_entropy(model(batch, noise), labels, ignore_index=IGNORED)


@pytest.mark.sampled
@DTYPES
@EVERY
def test_logits_loss_and_accuracy(name, dtype):
    weights, batch, kind = drawn(name, dtype), examples(), KINDS[name]
    model, found = loaded(name, weights), plain.logits(weights, kind, SIZES, batch.inputs)
    with torch.no_grad():
        assert_close(model(batch), found, **CLOSE[dtype])
        loss = plain.loss(found, batch.labels, kind)
        assert_close(our_loss(model, batch), loss, **CLOSE[dtype])
    labels = batch.labels.clone()
    labels[::2] = found.argmax(-1)[::2]  # So that some are right.
    labels[1] = 0
    scored = score(model, replace(batch, labels=labels), batch_size=7)
    assert scored.accuracy == pytest.approx(plain.accuracy(found, labels, kind), abs=1e-12)
    assert 0.2 < scored.accuracy < 0.9
    assert scored.loss == pytest.approx(float(plain.loss(found, labels, kind)), abs=1e-5)


def gradients(weights: plain.Weights, loss: torch.Tensor, name: str) -> dict[str, torch.Tensor]:
    """Gradients of the plain implementation's loss, laid out as our parameters are."""
    found: dict[str, dict[int, torch.Tensor]] = {}
    for weight, gradient in zip(weights, torch.autograd.grad(loss, list(weights.values())), strict=True):
        key, rows = place_of(weight, name)
        found.setdefault(key, {})[rows.start or 0] = gradient
    return {key: torch.cat([pieces[start] for start in sorted(pieces)]) for key, pieces in found.items()}


@pytest.mark.sampled
@DTYPES
@EVERY
@pytest.mark.parametrize("impl", ["fastest", "reference"])
def test_what_is_dropped_where_and_the_gradient(name, dtype, impl):
    weights, batch, kind = drawn(name, dtype), examples(), KINDS[name]
    for values in weights.values():
        values.requires_grad_()
    masks = Masks()
    loss = plain.loss(plain.logits(weights, kind, SIZES, batch.inputs, masks.plainly), batch.labels, kind)
    model = loaded(name, {key: values.detach() for key, values in weights.items()}, impl)
    ours = our_loss(model, batch, masks)
    assert masks.used == len(masks.drawn) == SIZES.layers * (2 if kind.latent else 3)
    assert_close(ours, loss, **CLOSE[dtype])
    ours.backward()
    expected = gradients(weights, loss, name)
    assert expected.keys() == {key for key, value in model.named_parameters() if value.requires_grad}
    for key, value in model.named_parameters():
        assert_close(value.grad, expected[key], **CLOSE[dtype], msg=lambda text, key=key: f"{key}: {text}")


@EVERY
def test_what_training_descends_is_the_gradient_of_that_loss(name):
    weights, batch, kind = drawn(name, torch.float32), examples(), KINDS[name]
    model = loaded(name, weights)
    for values in weights.values():
        values.requires_grad_()
    loss = plain.loss(plain.logits(weights, kind, SIZES, batch.inputs), batch.labels, kind)
    assert_close(accumulate(model, batch, None, 5, torch.float32), loss.detach(), **CLOSE[torch.float32])
    expected = gradients(weights, loss, name)
    for key, value in model.named_parameters():
        assert_close(
            value.grad, expected[key], **CLOSE[torch.float32], msg=lambda text, key=key: f"{key}: {text}"
        )


def ablated_plainly(name: str, dtype: torch.dtype, batch: Batch) -> dict[tuple[int, int], torch.Tensor]:
    """Class logits with each head ablated as the public code does it."""
    weights, kind = drawn(name, dtype), KINDS[name]
    places = plain.ablations(weights, kind, SIZES)
    return {place: plain.logits(weights, kind, SIZES, batch.inputs) for place in places}


def protocol_of(name: str) -> str:
    return "released-mla" if KINDS[name].latent else "released"


@pytest.mark.sampled
@EVERY
def test_ablated_heads(name):
    batch, kind = examples(6), KINDS[name]
    expected = ablated_plainly(name, torch.float64, batch)
    intact = plain.logits(drawn(name, torch.float64), kind, SIZES, batch.inputs)
    moved = {place for place, found in expected.items() if (found - intact).abs().max() > 1e-3}
    assert moved == {(layer, head) for layer, head in expected if head < 8 or not kind.latent}
    model = loaded(name, drawn(name, torch.float64))
    variants = PROTOCOLS[protocol_of(name)].variants(model.config)
    for variant in variants:
        place = variant[-1].layer, variant[-1].head
        with torch.no_grad(), ablated(model, *variant):
            assert_close(
                model(batch),
                expected[place],
                **CLOSE[torch.float64],
                msg=lambda text, at=place: f"{at}: {text}",
            )
    for found in ablated_logits(loaded(name, drawn(name, torch.float32)), batch, variants):
        for row, variant in enumerate(found.variants.tolist()):
            place = variants[variant][-1].layer, variants[variant][-1].head
            theirs = expected[place][found.examples].float()
            assert_close(
                found.logits[row], theirs, **CLOSE[torch.float32], msg=lambda text, at=place: f"{at}: {text}"
            )


@pytest.mark.parametrize("name", ["rope", "mla"])
def test_drops_are_of_training_and_held_out_examples_together(name):
    train, held_out, kind = examples(20, seed=1), examples(9, seed=2), KINDS[name]
    weights = drawn(name, torch.float32)
    model = loaded(name, weights)
    train, held_out = (relabelled(weights, kind, part) for part in (train, held_out))
    words, labels = (torch.cat([getattr(part, field) for part in (train, held_out)]) for field in WHOLE)
    intact = plain.accuracy(plain.logits(weights, kind, SIZES, words), labels, kind)
    protocol = PROTOCOLS[protocol_of(name)]
    drops = sweep(model, protocol.examples(train, held_out), protocol=protocol).drops()
    places = plain.ablations(weights, kind, SIZES)
    expected = {
        place: 100 * (intact - plain.accuracy(plain.logits(weights, kind, SIZES, words), labels, kind))
        for place in places
    }
    assert {(drop.layer, drop.head): pytest.approx(drop.drop) for drop in drops} == expected
    assert len(set(expected.values())) > 2


WHOLE = ("inputs", "labels")


def relabelled(weights: plain.Weights, kind: Kind, batch: Batch) -> Batch:
    """The examples with labels that the network mostly gets right, and some that are 0."""
    labels = plain.logits(weights, kind, SIZES, batch.inputs).argmax(-1)
    labels[::4] = 0
    return replace(batch, labels=labels)


def test_the_last_head_of_a_layer_stays_off_and_no_other():
    """R9, on the plain implementation itself: weights that are zero while each head is measured."""
    weights, kind = drawn("nope", torch.float64), KINDS["nope"]
    inner = SIZES.heads * SIZES.head
    for layer, head in plain.ablations(weights, kind, SIZES):
        off = set()
        for other in range(SIZES.layers):
            for part in ("weight", "bias"):
                values = weights[f"layers.{other}.attention.value.{part}"].reshape(inner, -1)
                zero = (values == 0).all(1).view(SIZES.heads, SIZES.head).all(1)
                off |= {(other, at) for at in zero.nonzero().flatten().tolist()}
        assert off == {(layer, head)} | {(before, SIZES.heads - 1) for before in range(layer)}


def test_faults_of_the_ablation_alone_change_the_same_heads():
    config = config_of("nope")
    assert PROTOCOLS["R9"].variants(config) == PROTOCOLS["released"].variants(config)
    assert PROTOCOLS["R10"].variants(config) == PROTOCOLS["controlled"].variants(config)
    latent = config_of("mla")
    for alone, together in zip(
        PROTOCOLS["R12"].variants(latent), PROTOCOLS["released-mla"].variants(latent), strict=True
    ):
        assert alone == together[-1:]
