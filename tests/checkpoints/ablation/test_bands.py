"""Frequency bands of a Llama: the sweep equals a model whose own rotation is changed for one head."""

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from transformers import BloomConfig, BloomForCausalLM, LlamaConfig, LlamaForCausalLM
from transformers.models.llama import modeling_llama

from spectrope.checkpoints.ablation.rotary import rotated_heads
from spectrope.checkpoints.ablation.sources import rotary_means
from spectrope.checkpoints.ablation.subject import CheckpointSubject
from spectrope.checkpoints.ablation.sweep import checkpoint_scores, checkpoint_sweep
from spectrope.checkpoints.adapters import Call
from spectrope.checkpoints.audit.layout import Layout
from spectrope.checkpoints.sequences import predicting
from spectrope.core.errors import UnsupportedError
from spectrope.lab.ablation.interventions import HeadAblation

LAYERS, HEADS, DIM, BANDS = 2, 4, 8, 2
KINDS = ("remove-band", "freeze-band", "keep-band", "remove-band-off-sink")


def llama(**fields) -> LlamaForCausalLM:
    torch.manual_seed(0)
    sizes = {"hidden_size": HEADS * DIM, "intermediate_size": 48, "num_hidden_layers": LAYERS}
    config = LlamaConfig(
        vocab_size=60,
        num_attention_heads=HEADS,
        num_key_value_heads=2,
        max_position_embeddings=64,
        rope_theta=50.0,
        **sizes,
        **fields,
    )
    model = LlamaForCausalLM(config).double().eval()
    for parameter in model.parameters():
        if parameter.ndim > 1:
            parameter.data.mul_(4)
    return model


def data(n=3, length=11):
    ids = torch.randint(5, 60, (n, length), generator=torch.Generator().manual_seed(1))
    lengths = torch.full((n,), length) - torch.arange(n)
    return predicting(ids, torch.arange(length) < lengths[:, None], lengths)


def angles(t, changed, lags=None):
    """Angles (h, t, d) of queries or keys, written out from the configuration: base 50, halves as pairs."""
    frequencies = torch.tensor([50.0 ** (-2 * j / DIM) for j in range(DIM // 2)], dtype=torch.float64)
    full = torch.arange(t, dtype=torch.float64)[:, None] * frequencies
    held = torch.zeros(HEADS, 1, 1) if lags is None else lags[:, None, None]
    mixed = torch.where(changed, held * frequencies, full)
    return torch.cat([mixed, mixed], -1)


def turned(x, angle):
    half = torch.cat([-x[..., DIM // 2 :], x[..., : DIM // 2]], -1)
    return x * angle.cos() + half * angle.sin()


def by_hand(model, sequences, layer, head, fill, lags):
    """Loss and accuracy with the attention of one head computed here, from the projections' own outputs."""
    kind, _, band = fill.partition("@")
    pairs = torch.arange(DIM // 2)
    inside = (pairs * BANDS // (DIM // 2) == int(band[0])) if band else pairs >= 0
    changed = ~inside if kind == "keep-band" else inside
    attention = model.model.layers[layer].self_attn
    outputs = {}

    def keep(name):
        return lambda module, args, output: outputs.__setitem__(name, output)

    def replace(module, args):
        q, k, v = (outputs[name].unflatten(-1, (-1, DIM)).transpose(1, 2) for name in "qkv")
        k, v = (x.repeat_interleave(HEADS // 2, 1) for x in (k, v))
        t = q.shape[2]
        nothing = torch.zeros(DIM // 2, dtype=torch.bool)
        held = lags if kind == "freeze-band" else None
        intact = turned(q, angles(t, nothing)) @ turned(k, angles(t, nothing)).mT
        scores = turned(q, angles(t, changed, held)) @ turned(k, angles(t, changed)).mT
        if kind == "remove-band-off-sink":
            scores[..., 0] = intact[..., 0]
        if kind == "position-only":
            real = sequences.real[:, None, :, None]
            q, k = ((x * real).sum((0, 2)) / real.sum() for x in (q, k))
            q, k = (x[None, :, None].expand(len(sequences), -1, t, -1) for x in (q, k))
            scores = turned(q, angles(t, nothing)) @ turned(k, angles(t, nothing)).mT
        later = torch.ones(t, t, dtype=torch.bool).triu(1)
        pattern = (scores / math.sqrt(DIM)).masked_fill(later, -torch.inf).softmax(-1)
        out = args[0].clone()
        out[..., head * DIM : (head + 1) * DIM] = (pattern @ v)[:, head]
        return (out,)

    handles = [getattr(attention, f"{name}_proj").register_forward_hook(keep(name)) for name in "qkv"]
    handles.append(attention.o_proj.register_forward_pre_hook(replace))
    with torch.no_grad():
        logits = model(**sequences.inputs(1)).logits
    for handle in handles:
        handle.remove()
    loss = F.cross_entropy(logits.transpose(1, 2), sequences.targets, reduction="none")
    counts = sequences.scored.sum(1)
    hits = ((logits.argmax(-1) == sequences.targets) & sequences.scored).double().sum(1) / counts
    return torch.stack([loss.sum(1) / counts, hits], 1)


@pytest.mark.parametrize("kind", [*KINDS, "content-only", "position-only"])
def test_every_head_and_band_equals_attention_written_out(kind):
    model, sequences = llama(), data()
    subject = CheckpointSubject.of(model)
    means = rotary_means(subject, sequences)
    fills = [kind] if kind.endswith("only") else [f"{kind}@{band}of{BANDS}" for band in range(BANDS)]
    cells = [(layer, head, fill) for layer in range(LAYERS) for head in range(HEADS) for fill in fills]
    found = checkpoint_scores(subject, sequences, [(HeadAblation(*cell),) for cell in cells])
    for place, (layer, head, fill) in enumerate(cells):
        expected = by_hand(model, sequences, layer, head, fill, means[layer].lags)
        torch.testing.assert_close(found[place], expected, atol=1e-6, rtol=0)


def test_the_mean_lag_is_that_of_the_models_own_patterns():
    model, sequences = llama(attn_implementation="eager"), data(n=1)
    with torch.no_grad():
        patterns = model(**sequences.inputs(1), output_attentions=True).attentions
    lag = torch.arange(11)[:, None] - torch.arange(11)
    for means, pattern in zip(rotary_means(CheckpointSubject.of(model), sequences), patterns, strict=True):
        expected = (pattern * lag).sum(-1).mean((0, 2))
        torch.testing.assert_close(means.lags, expected, atol=1e-6, rtol=0)


def test_the_model_is_left_as_it_was():
    model, sequences = llama(), data()
    rotate = modeling_llama.apply_rotary_pos_emb
    before = checkpoint_sweep(model, sequences).intact
    checkpoint_scores(CheckpointSubject.of(model), sequences, [(HeadAblation(0, 0, "remove-band@0of2"),)])
    assert (checkpoint_sweep(model, sequences).intact == before).all()
    assert modeling_llama.apply_rotary_pos_emb is rotate


def test_a_single_variant_of_a_later_layer_is_measured_alone():
    model, sequences = llama(), data()
    subject = CheckpointSubject.of(model)
    variant = (HeadAblation(1, 2, "keep-band@1of2"),)
    together = checkpoint_scores(subject, sequences, [(), (HeadAblation(0, 0),), variant])
    torch.testing.assert_close(checkpoint_scores(subject, sequences, [variant])[0], together[2])


def test_what_is_refused():
    bloom = BloomForCausalLM(BloomConfig(vocab_size=60, hidden_size=32, n_layer=1, n_head=4)).eval()
    removed = [(HeadAblation(0, 0, "remove-band@0of2"),)]
    with pytest.raises(UnsupportedError, match="no rotary module"):
        checkpoint_scores(CheckpointSubject.of(bloom), data(), removed)
    twice = llama()
    twice.second = copy.deepcopy(twice.model.rotary_emb)
    with pytest.raises(UnsupportedError, match="2 rotary modules"):
        checkpoint_scores(CheckpointSubject.of(twice), data(), removed)
    both = [(HeadAblation(0, 0, "content-only"), HeadAblation(1, 0, "content-only"))]
    with pytest.raises(UnsupportedError, match="one head at a time"):
        checkpoint_scores(CheckpointSubject.of(llama()), data(), both)


def test_rotations_and_values_have_to_be_seen():
    odd = llama()
    subject = CheckpointSubject.of(odd)
    assert {rotation.layout for rotation in subject.rotations.values()} == {Layout("halves", 0, DIM)}
    odd.model.rotary_emb.register_forward_hook(lambda module, args, output: (output[0][0], output[1][0]))
    with pytest.raises(UnsupportedError, match="does not rotate by cosines and sines"):
        rotary_means(subject, data())
    q = torch.zeros(1, 1, 3, 4)
    call = Call("attention", q, q, None, torch.ones(1, 1, 3, 3, dtype=torch.bool), 0.5)
    with pytest.raises(UnsupportedError, match="values and scale"):
        rotated_heads(call, torch.ones(1, 3, 4), torch.zeros(1, 3, 4), Layout("halves", 0, 4))
    with pytest.raises(UnsupportedError, match="is for runs"):
        checkpoint_scores(CheckpointSubject.of(llama()), data(), [(HeadAblation(0, 0, "value-bias"),)])
