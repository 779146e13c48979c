"""Groups of heads: planted ones, and costs against independent ways to compute them."""

import copy

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from spectrope.checkpoints.ablation.sources import pieces
from spectrope.checkpoints.ablation.subject import CheckpointSubject
from spectrope.checkpoints.ablation.sweep import checkpoint_scores
from spectrope.checkpoints.repeated import groups
from spectrope.checkpoints.repeated.groups import (
    BANDS,
    INDUCTION,
    PREVIOUS,
    changes,
    group_costs,
    group_of,
    heads_of,
    scores_together,
)
from spectrope.checkpoints.sequences import UNSCORED, Sequences
from spectrope.lab import AttendedHead, HeadAblation

VOCABULARY, WIDTH, PAIRS = 8, 16, 8  # Tokens, width of a head, its pairs.
CHANGES = {(name, band and band.index): change for name, band, change in changes()}


def llama(layers: int = 1) -> LlamaForCausalLM:
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 8, "num_attention_heads": 2, "num_hidden_layers": layers}
    rope = {"rope_type": "default", "rope_theta": 100.0}
    return LlamaForCausalLM(LlamaConfig(vocab_size=VOCABULARY, rope_parameters=rope, **sizes)).eval()


def tokens(n: int = 6, length: int = 24) -> Sequences:
    """Random tokens, where the one before each token is wanted."""
    ids = torch.randint(VOCABULARY, (n, length), generator=torch.Generator().manual_seed(1))
    targets = torch.cat([torch.full_like(ids[:, :1], UNSCORED), ids[:, :-1]], 1)
    return Sequences(ids, targets, torch.full((n,), length))


@torch.no_grad()
def planted(band: int) -> LlamaForCausalLM:
    """Head 0.1 attends to the previous token by the pairs of one band, and copies what it finds there."""
    model = llama()
    for weight in model.parameters():
        weight.zero_() if weight.ndim == 2 else weight.fill_(1.0)
    one, attention = torch.eye(VOCABULARY), model.model.layers[0].self_attn
    model.model.embed_tokens.weight[:, :VOCABULARY] = one
    model.model.embed_tokens.weight[:, 16] = 1.0
    model.lm_head.weight[:, VOCABULARY : 2 * VOCABULARY] = one
    model.lm_head.weight[:, :VOCABULARY] = 0.1 * one  # The current token, if nothing is copied.
    attention.v_proj.weight[WIDTH : WIDTH + VOCABULARY, :VOCABULARY] = one
    attention.o_proj.weight[VOCABULARY : 2 * VOCABULARY, WIDTH : WIDTH + VOCABULARY] = one
    pairs = torch.tensor([2 * band, 2 * band + 1])
    frequencies = 100.0 ** (-pairs / PAIRS)
    attention.k_proj.weight[WIDTH + pairs, 16] = 40.0 / frequencies
    attention.q_proj.weight[WIDTH + pairs, 16] = frequencies.cos() / frequencies
    attention.q_proj.weight[WIDTH + PAIRS + pairs, 16] = -frequencies.sin() / frequencies
    return model


@pytest.mark.parametrize("band", [0, 1, 2])
def test_a_planted_previous_token_head_needs_its_own_band_alone(band):
    subject, data = CheckpointSubject.of(planted(band)), tokens()
    heads = heads_of(subject, data)
    assert [group_of(head) for head in heads] == [None, PREVIOUS]
    assert heads[1].previous > 0.9
    costs = group_costs(subject, data, heads)
    assert (costs.filter(group=INDUCTION)["drop"] == 0).all()
    found = {
        (name, at): drop
        for name, at, drop in costs.filter(group=PREVIOUS).select("intervention", "band", "drop").iter_rows()
    }
    assert set(found) == set(CHANGES)
    for name in ("remove-band", "silence-band"):
        assert found[name, band] > 40.0
        assert [found[name, other] for other in range(4) if other != band] == [0.0] * 3
    assert found["content-only", None] == pytest.approx(found["remove-band", band])
    assert found["zero", None] > 40.0


@pytest.mark.parametrize(
    "name", [("remove-band", 0), ("remove-band", 3), ("content-only", None), ("zero", None)]
)
def test_one_head_alone_costs_what_the_sweep_of_checkpoints_says(name):
    subject, data = CheckpointSubject.of(llama(layers=2)), tokens()
    fill = name[0] if name[1] is None else f"{name[0]}@{name[1]}of4"
    for layer, head in ((0, 1), (1, 0)):
        (swept,) = checkpoint_scores(subject, data, [(HeadAblation(layer, head, fill),)])
        alone = scores_together(subject, data, [(layer, head)], CHANGES[name])
        torch.testing.assert_close(alone, swept, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("band", range(4))
def test_silencing_a_band_equals_queries_without_its_pairs_in_all_heads_at_once(band):
    model, data, members = llama(layers=2), tokens(), [(0, 0), (0, 1), (1, 1)]
    subject = CheckpointSubject.of(model)
    together = scores_together(subject, data, members, CHANGES["silence-band", band])
    edited = copy.deepcopy(model)
    pairs = torch.tensor(list(BANDS[band].among(PAIRS)))
    for layer, head in members:
        weight = edited.model.layers[layer].self_attn.q_proj.weight.data
        weight[head * WIDTH + pairs] = 0.0
        weight[head * WIDTH + PAIRS + pairs] = 0.0
    expected = scores_together(CheckpointSubject.of(edited), data, (), CHANGES["zero", None])
    torch.testing.assert_close(together, expected, rtol=1e-5, atol=1e-5)
    assert not torch.allclose(together, scores_together(subject, data, (), CHANGES["zero", None]))


@pytest.mark.parametrize(
    ("previous", "induction", "group"),
    [
        (0.3, 0.1, PREVIOUS),
        (0.29, 0.1, None),
        (0.1, 0.3, INDUCTION),
        (0.4, 0.5, INDUCTION),
        (0.3, None, PREVIOUS),
    ],
)
def test_a_group_takes_30_percent_of_the_attention(previous, induction, group):
    assert group_of(AttendedHead(0, 0, 1.0, 0.0, previous, induction, (), "")) == group


def test_scores_of_pieces_on_another_device_are_placed_from_it(monkeypatch):
    """There, neither the numbers of sequences nor their scores index or enter a tensor on the CPU."""
    subject, data = CheckpointSubject.of(llama()), tokens()
    expected = scores_together(subject, data, [(0, 1)], CHANGES["zero", None])

    class Elsewhere:
        def __init__(self, index):
            self.index = index

        def cpu(self):
            return self.index

    def elsewhere(data, size):
        return ((Elsewhere(index), piece) for index, piece in pieces(data, size))

    monkeypatch.setattr(groups, "pieces", elsewhere)
    found = scores_together(subject, data, [(0, 1)], CHANGES["zero", None])
    assert torch.equal(found, expected)
