import numpy as np
import pytest
import torch
from tests.lab.ablation.models import decoder, examples, head_pairs, whole_layers

from spectrope.core.config import from_dict, to_dict
from spectrope.core.errors import ConfigError
from spectrope.lab.ablation.deposit import deposit_table
from spectrope.lab.ablation.engine import correctness
from spectrope.lab.ablation.heads import ablated
from spectrope.lab.ablation.interventions import HeadAblation, growing, single_heads
from spectrope.lab.ablation.protocols import PROTOCOLS, Protocol, joined
from spectrope.lab.ablation.rule import drops
from spectrope.lab.ablation.sweep import sweep
from spectrope.lab.evaluation.score import predict
from spectrope.tasks.base import Batch


def test_rows_are_the_drops_of_correctness():
    model, data = decoder(), examples(50)
    found = sweep(model, data)
    intact = predict(model, data).argmax(-1) == data.labels
    assert (found.intact == intact.numpy()).all()
    for row, (variant,) in zip(found.drops(), single_heads(model.config), strict=True):
        with ablated(model, variant):
            right = (predict(model, data).argmax(-1) == data.labels).double().mean().item()
        assert (row.layer, row.head, row.fill) == (variant.layer, variant.head, "zero")
        assert row.ablated == pytest.approx(right)
        assert row.drop == pytest.approx(100 * (row.intact - right))
        assert row.low < row.drop < row.high
        assert row.n == 50


def test_statistics_take_a_sweep():
    found = sweep(decoder(), examples(50))
    estimates = drops(found.intact, found.ablated).ravel()
    assert estimates == pytest.approx([row.drop for row in found.drops()])
    assert deposit_table(found.intact, found.ablated)["layer"].to_list() == [0, 1, 2]


@pytest.mark.parametrize("fill", ["mean", "resample", "position-only"])
def test_fills_are_passed_on(fill):
    model, data = decoder(), examples(40)
    found = sweep(model, data, protocol=Protocol(fill=fill), seed=2)
    expected = correctness(model, data, single_heads(model.config, fill), seed=2).numpy()
    np.testing.assert_array_equal(found.ablated.reshape(12, -1), expected)
    assert {row.fill for row in found.drops()} == {fill}


def test_r9_leaves_the_last_head_of_each_earlier_layer_off():
    """Simulated as the public code does it: value rows are zeroed, and put back one head too late."""
    model, data = decoder(), examples(60)
    original = {n: v.clone() for n, v in model.state_dict().items()}
    inner, width, hits = model.blocks[0].heads.inner, model.config.head_dim, []
    for layer in range(3):
        qkv = model.blocks[layer].heads.qkv
        kept = {name: value.clone() for name, value in qkv.state_dict().items()}
        for head in range(4):
            with torch.no_grad():
                qkv.load_state_dict(kept)
                rows = slice(2 * inner + head * width, 2 * inner + (head + 1) * width)
                qkv.weight[rows], qkv.bias[rows] = 0, 0
            hits.append((predict(model, data).argmax(-1) == data.labels).numpy())
    model.load_state_dict(original)
    found = sweep(model, data, protocol=PROTOCOLS["R9"])
    np.testing.assert_array_equal(found.ablated.reshape(12, -1), hits)
    clean = sweep(model, data)
    np.testing.assert_array_equal(found.ablated[0], clean.ablated[0])
    assert (found.ablated[1:] != clean.ablated[1:]).any()


def test_r10_measures_on_training_examples_too():
    train, held_out = examples(7, seed=1), examples(5, seed=2)
    assert PROTOCOLS["R10"].examples(train, held_out).labels.tolist() == [*train.labels, *held_out.labels]
    assert PROTOCOLS["released"].examples(train, held_out).inputs.shape == (12, 12)
    assert PROTOCOLS["controlled"].examples(train, held_out).labels.tolist() == held_out.labels.tolist()


def test_a_few_examples_are_of_both_kinds_in_proportion():
    train, held_out = examples(70, seed=1), examples(30, seed=2)
    few = PROTOCOLS["released"].examples(train, held_out, 20)
    assert few.labels.tolist() == [*train.labels[:14], *held_out.labels[:6]]
    assert len(PROTOCOLS["released"].examples(train, held_out, 1000)) == 100
    assert len(PROTOCOLS["controlled"].examples(train, held_out, 20)) == 20


def test_joining_keeps_positions():
    batch = Batch(
        torch.ones(2, 3, dtype=torch.long), torch.zeros(2).long(), torch.full((2,), 3), torch.eye(2, 3)
    )
    assert joined(batch, batch).positions.shape == (4, 3)
    assert joined(examples(2), examples(3)).positions is None


def test_protocols_are_configurations():
    for protocol in map(PROTOCOLS.__getitem__, PROTOCOLS):
        assert from_dict(Protocol, to_dict(protocol)) == protocol
    with pytest.raises(ConfigError, match=r"unknown fill 'zeros'; did you mean zero"):
        from_dict(Protocol, {"fill": "zeros"})


def test_lists_of_variants():
    config = decoder().config
    assert len(single_heads(config)) == 12
    assert len(set(head_pairs(config))) == 66
    assert [len(layer) for layer in whole_layers(config)] == [4, 4, 4]
    order = [HeadAblation(2, 1), HeadAblation(0, 0), HeadAblation(1, 3)]
    assert growing(order) == [tuple(order[:1]), tuple(order[:2]), tuple(order)]
    assert growing([]) == []
