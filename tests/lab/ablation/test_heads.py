import pytest
import torch
from tests.lab.ablation.models import decoder, examples, whole_layers

from spectrope.core.errors import ConfigError
from spectrope.lab.ablation.engine import correctness
from spectrope.lab.ablation.heads import ablated
from spectrope.lab.ablation.interventions import HeadAblation, single_heads
from spectrope.lab.evaluation.score import predict
from spectrope.tasks.base import Batch


def test_hooks_are_taken_back_after_an_exception_and_an_interrupt():
    model, data = decoder(), examples(4)
    before, state = predict(model, data), {n: v.clone() for n, v in model.state_dict().items()}

    def broken_off(error):
        with ablated(model, HeadAblation(0, 1), HeadAblation(2, 2, "content-only")):
            assert not predict(model, data).equal(before)
            raise error

    for error in (RuntimeError, KeyboardInterrupt):
        with pytest.raises(error):
            broken_off(error)
    assert predict(model, data).equal(before)
    assert all(value.equal(state[name]) for name, value in model.state_dict().items())


def test_an_unknown_head_leaves_no_hook_behind():
    model = decoder()
    with (
        pytest.raises(ConfigError, match="between 0 and 3"),
        ablated(model, HeadAblation(0, 0), HeadAblation(0, 9)),
    ):
        pass
    assert not any(module._forward_hooks for module in model.modules())


@torch.no_grad()
def silenced(model, layer, head):
    """Give a head no way out: its columns of the output projection are zero."""
    width = model.config.head_dim
    model.blocks[layer].out.weight[:, head * width : (head + 1) * width] = 0
    return model


def test_a_head_without_output_projection_has_no_drop_at_all():
    model, data = silenced(decoder(), 1, 2), examples(60)
    for fill in ("zero", "mean", "resample", "position-only", "content-only", "value-bias"):
        intact, changed = correctness(model, data, [(), (HeadAblation(1, 2, fill),)])
        assert intact.equal(changed)


def test_a_hand_built_head_has_a_known_accuracy_without_it():
    """It alone carries the answer: without it the network always says class 1."""
    hits = correctness(answering(heads=[1]), loud_tokens(), [(), *single_heads(answering([1]).config)])
    right = hits.double().mean(1).tolist()
    assert right[0] == 1
    assert right[2] == (loud_tokens().labels == 1).double().mean()
    assert right[1:2] + right[3:] == [1] * 11


def test_two_redundant_heads_have_no_single_drop_and_a_large_pair_drop():
    a, b = HeadAblation(0, 0), HeadAblation(0, 2)
    hits = correctness(answering(heads=[0, 2]), loud_tokens(), [(), (a,), (b,), (a, b)])
    right = hits.double().mean(1).tolist()
    assert right == [1, 1, 1, (loud_tokens().labels == 1).double().mean()]


def test_without_all_heads_the_network_is_its_feed_forward_part():
    model, data = decoder(), examples(30)
    everything = sum(whole_layers(model.config), ())
    (got,) = correctness(model, data, [everything])
    with torch.inference_mode():
        expected = []
        for i in range(30):
            one = data[i : i + 1].trimmed()
            x = model.tokens(one.inputs)
            for block in model.blocks:
                x = x + block.out.bias
                x = x + block.down(block.up(block.ff_norm(x)).relu())
            expected.append(model.classifier(x.mean(1)).argmax().item() == one.labels.item())
    assert got.tolist() == expected


def loud_tokens(n=300):
    """Sequences with one token from 8 to 13 among tokens from 1 to 7; the label is that token minus 8."""
    data = examples(n)
    draw = torch.Generator().manual_seed(1)
    labels = torch.randint(0, 6, (n,), generator=draw)
    inputs = torch.where(data.inputs > 0, data.inputs % 7 + 1, 0)
    inputs[torch.arange(n), (torch.rand(n, generator=draw) * data.lengths).long()] = labels + 8
    return Batch(inputs, labels, data.lengths)


@torch.no_grad()
def answering(heads):
    """A decoder of which the given heads of layer 0 carry the class of the loud token to the last place.

    Embeddings: coordinate 7 marks quiet tokens, 8 loud ones, 0 to 5 the class. A head's queries are constant
    and its keys read coordinate 8; its values read the class and go to coordinates 9 to 14, where the
    classifier looks. All other weights are zero, but for a small preference for class 1.
    """
    model = decoder("nope", pooling="last")
    for parameter in model.parameters():
        parameter.zero_()
    for block in model.blocks:
        block.attention_norm.weight.fill_(1)
        block.ff_norm.weight.fill_(1)
    classes = torch.arange(6)
    model.tokens.weight[1:8, 7] = 1
    model.tokens.weight[8:14, 8] = 1
    model.tokens.weight[classes + 8, classes] = 1
    block, width, inner = model.blocks[0], model.config.head_dim, model.blocks[0].heads.inner
    for head in heads:
        at = head * width
        block.heads.qkv.bias[at] = 50
        block.heads.qkv.weight[inner + at, 8] = 1
        block.heads.qkv.weight[2 * inner + at + classes, classes] = 1
        block.out.weight[9 + classes, at + classes] = 1
    model.classifier.weight[classes, 9 + classes] = 1
    model.classifier.bias[1] = 0.01
    return model
