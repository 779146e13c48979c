"""Heads of checkpoints: the sweep equals one hooked forward per head, and leaves the model as it was."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from tests.checkpoints.audit.families import FAMILIES

from spectrope.checkpoints.ablation.stages import CheckpointStages
from spectrope.checkpoints.ablation.subject import CheckpointSubject
from spectrope.checkpoints.ablation.sweep import checkpoint_scores, checkpoint_sweep
from spectrope.checkpoints.adapters import head_sites, linear_weight
from spectrope.checkpoints.probes.constant_content import attending_modules
from spectrope.checkpoints.sequences import UNSCORED, Sequences, continuing, predicting
from spectrope.core.errors import ConfigError, UnsupportedError
from spectrope.core.progress import Progress
from spectrope.lab.ablation.gather import derangement
from spectrope.lab.ablation.interventions import HeadAblation
from spectrope.lab.ablation.tree import Fork, Stages

FILLS = ("zero", "mean", "resample")
# Where each family's heads go, known independently of the code; grouped queries, latent attention and an
# encoder among them, attention with and without the residual inside, weights of both orders.
PROJECTIONS = {
    "gpt2": "transformer.h.{}.attn.c_proj",
    "gpt_neox": "gpt_neox.layers.{}.attention.dense",
    "gptj": "transformer.h.{}.attn.out_proj",
    "opt": "model.decoder.layers.{}.self_attn.out_proj",
    "bloom": "transformer.h.{}.self_attention.dense",
    "mpt": "transformer.blocks.{}.attn.out_proj",
    "falcon-alibi": "transformer.h.{}.self_attention.dense",
    "bert": "bert.encoder.layer.{}.attention.output.dense",
    "llama-yarn": "model.layers.{}.self_attn.o_proj",
    "gemma2": "model.layers.{}.self_attn.o_proj",
    "smollm3": "model.layers.{}.self_attn.o_proj",
    "deepseek_v3": "model.layers.{}.self_attn.o_proj",
}


TWO_STACKS = {
    "t5": {
        "encoder": "encoder.block.{}.layer.0.SelfAttention.o",
        "decoder": "decoder.block.{}.layer.0.SelfAttention.o",
        "cross": "decoder.block.{}.layer.1.EncDecAttention.o",
    },
    "bart": {
        "encoder": "model.encoder.layers.{}.self_attn.out_proj",
        "decoder": "model.decoder.layers.{}.self_attn.out_proj",
        "cross": "model.decoder.layers.{}.encoder_attn.out_proj",
    },
}
ROLES = {False: ("",), True: ("cross", "decoder", "encoder")}


def projection(family: str, role: str, layer: int) -> str:
    return (PROJECTIONS[family] if not role else TWO_STACKS[family][role]).format(layer)


def n_layers(family: str) -> int:
    return 4 if family == "smollm3" else 2


def width_of(model: torch.nn.Module, name: str) -> int:
    weight = linear_weight(model.get_submodule(name))
    assert weight is not None
    return weight.shape[1] // 4


def built(family: str) -> torch.nn.Module:
    """In float64, with weights large enough for heads to matter."""
    model = FAMILIES[family]().double()
    if family == "deepseek_v3":
        model.set_experts_implementation("eager")  # grouped products take no float64
    for parameter in model.parameters():
        if parameter.ndim > 1:
            parameter.data.mul_(4)
    return model


def sequences(family: str, n: int = 4, length: int = 12, ragged: bool = False) -> Sequences:
    rng = torch.Generator().manual_seed(3)
    ids = torch.randint(5, 60, (n, length), generator=rng)
    lengths = torch.full((n,), length) - (torch.arange(n) % 3 if ragged else 0)
    wanted = torch.arange(length) < lengths[:, None]
    if family in TWO_STACKS:
        return continuing(ids, wanted, lengths, start=2)
    return predicting(ids, wanted, lengths, mask=4 if family == "bert" else None)


def hooked(model, name, data, head, width, replacement):
    """Loss and accuracy per sequence of one plain forward with one head's output replaced by a hook."""

    def hook(module, args):
        changed = args[0].clone()
        changed[..., head * width : (head + 1) * width] = replacement
        return (changed,)

    handle = model.get_submodule(name).register_forward_pre_hook(hook)
    found = plain(model, data)
    handle.remove()
    return found


@torch.no_grad()
def plain(model, data):
    logits = model(**data.inputs(1)).logits
    loss = F.cross_entropy(logits.transpose(1, 2), data.targets, reduction="none", ignore_index=UNSCORED)
    counts = data.scored.sum(1)
    hits = ((logits.argmax(-1) == data.targets) & data.scored).double().sum(1) / counts
    return torch.stack([loss.sum(1) / counts, hits], 1)


@torch.no_grad()
def inputs_of(model, name, data):
    """What enters a projection in the intact model."""
    found = []
    handle = model.get_submodule(name).register_forward_pre_hook(lambda _, args: found.append(args[0]))
    plain(model, data)
    handle.remove()
    return found[0]


# Their routers weigh experts in float32 in whatever precision the model is, so that sums depend on the batch.
ROUTED_IN_FLOAT32 = {"deepseek_v3"}


@pytest.mark.sampled
@pytest.mark.parametrize("family", [*PROJECTIONS, *TWO_STACKS])
def test_every_head_costs_what_one_hooked_forward_says(family):
    model, data = built(family), sequences(family, ragged=True)
    found = checkpoint_sweep(model, data, tokens=40)
    near = 1e-9 if family not in ROUTED_IN_FLOAT32 else 1e-7
    torch.testing.assert_close(torch.from_numpy(found.intact), plain(model, data), rtol=near, atol=near)
    assert sorted(found.heads) == [
        (role, i, h)
        for role in ROLES[family in TWO_STACKS]
        for i in range(n_layers(family))
        for h in range(4)
    ]
    for (role, layer, head), scores in zip(found.heads, found.ablated, strict=True):
        name = projection(family, role, layer)
        expected = hooked(model, name, data, head, width_of(model, name), 0.0)
        torch.testing.assert_close(torch.from_numpy(scores), expected, rtol=near, atol=near)
    assert abs(found.ablated[..., 0] - found.intact[:, 0]).max() > 1e-3


@pytest.mark.sampled
@pytest.mark.parametrize("fill", ["mean", "resample"])
@pytest.mark.parametrize("family", ["gpt2", "bloom", "bert", "deepseek_v3", "t5", "bart"])
def test_fills_are_taken_from_the_data(family, fill):
    model, data = built(family), sequences(family)
    found = checkpoint_sweep(model, data, fill=fill, tokens=100)
    for (role, layer, head), scores in zip(found.heads, found.ablated, strict=True):
        name = projection(family, role, layer)
        heads, width = inputs_of(model, name, data), width_of(model, name)
        own = heads[..., head * width : (head + 1) * width]
        replacement = own.mean((0, 1)) if fill == "mean" else own[derangement(len(data), 0)]
        expected = hooked(model, name, data, head, width, replacement)
        torch.testing.assert_close(torch.from_numpy(scores), expected, rtol=1e-9, atol=1e-9)


def test_sets_of_heads_over_layers_are_changed_together():
    """A tree with a shared stem, branches of one variant, two alike, and one that changes nothing."""
    model, data = built("smollm3"), sequences("smollm3")
    first, second, third = HeadAblation(0, 1), HeadAblation(2, 0), HeadAblation(3, 3, "mean")
    variants = [(), (first,), (first, second), (first, second, third), (second, third), (second, third)]
    variants += [(first, HeadAblation(0, 2)), (third,)]
    subject = CheckpointSubject.of(model)
    expected = torch.stack([all_hooked(subject, data, variant) for variant in variants])
    for tokens in (1, 1000):
        found = checkpoint_scores(subject, data, variants, tokens=tokens)
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("family", TWO_STACKS)
def test_sets_of_heads_across_stacks_are_changed_together(family):
    """Sites in the order in which they run: two of the encoder, then own and cross attention by turns."""
    model, data = built(family), sequences(family, ragged=True)
    early, own, cross = HeadAblation(1, 2), HeadAblation(2, 0), HeadAblation(3, 1)
    variants = [(), (early,), (early, own), (early, own), (early, own, cross), (own, cross), (cross,)]
    variants += [
        (own, cross, HeadAblation(5, 3)),
        (own, cross, HeadAblation(5, 2)),
        (own, HeadAblation(4, 1)),
    ]
    subject = CheckpointSubject.of(model)
    names = [site.name for site in subject.sites]
    assert names == ["encoder 0", "encoder 1", "decoder 0", "cross 0", "decoder 1", "cross 1"]
    expected = torch.stack([all_hooked(subject, data, variant) for variant in variants])
    for tokens in (1, 1000):
        found = checkpoint_scores(subject, data, variants, tokens=tokens)
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


def test_an_encoder_is_not_run_again_for_heads_behind_it():
    model, data, runs = built("t5"), sequences("t5"), []
    model.encoder.final_layer_norm.register_forward_hook(lambda *_: runs.append(1))
    subject = CheckpointSubject.of(model)
    runs.clear()
    checkpoint_scores(subject, data, [((HeadAblation(place, 1)),) for place in range(2, 6)], tokens=1000)
    assert len(runs) == 2  # once for what blocks hand on, once on the way to the decoder


def all_hooked(subject, data, variant):
    model, handles = subject.model, []
    for ablation in variant:
        name = subject.sites[ablation.layer].projection
        mean = inputs_of(model, name, data).mean((0, 1))
        own = slice(16 * ablation.head, 16 * ablation.head + 16)

        def hook(module, args, own=own, fill=mean[own] if ablation.fill == "mean" else 0.0):
            changed = args[0].clone()
            changed[..., own] = fill
            return (changed,)

        handles.append((name, hook))
    registered = [model.get_submodule(name).register_forward_pre_hook(hook) for name, hook in handles]
    found = plain(model, data)
    for handle in registered:
        handle.remove()
    return found


def test_layers_below_and_attention_of_the_own_layer_run_once_per_piece(monkeypatch):
    model, data = built("smollm3"), sequences("smollm3")
    subject, runs = CheckpointSubject.of(model), {}

    def count(name):
        model.get_submodule(name).register_forward_hook(
            lambda module, args, output: runs.update({name: runs.get(name, 0) + 1})
        )

    for site in subject.sites:
        count(site.module.replace("self_attn", "self_attn.q_proj"))
        count(site.module.replace("self_attn", "mlp"))
    checkpoint_scores(
        subject, data, [((HeadAblation(i, h)),) for i in range(4) for h in range(4)], tokens=1000
    )
    batches = [1, 1, 1, 1]  # all four heads of a layer in one batch
    assert [runs[f"model.layers.{i}.self_attn.q_proj"] for i in range(4)] == [
        1 + sum(batches[:i]) for i in range(4)
    ]
    trunk = [1, 1, 1, 0]  # the last layer is left by branches alone
    assert [runs[f"model.layers.{i}.mlp"] for i in range(4)] == [
        trunk[i] + sum(batches[: i + 1]) for i in range(4)
    ]


def test_an_interrupt_leaves_the_model_as_it_was():
    model, data = built("llama-yarn"), sequences("llama-yarn")
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    before, training = plain(model, data), model.train()

    def stop(progress):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        checkpoint_sweep(training, data, watch=stop)
    assert model.training
    model.eval()
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())
    assert torch.equal(plain(model, data), before)
    assert not any("forward" in module.__dict__ for module in model.modules())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_stages_and_forks_are_what_trees_grow_on():
    stages = CheckpointStages(CheckpointSubject.of(built("gpt2")), sequences("gpt2"))
    with torch.no_grad():
        x = stages.start()
        fork = stages.fork(0, x, [()])
        assert isinstance(stages, Stages)
        assert isinstance(fork, Fork)
        end = stages.fork(1, fork.advance(()), [()]).advance(())
        torch.testing.assert_close(stages.read(end), plain(stages.subject.model, stages.data))


def test_rows_carry_units_and_intervals():
    model, data = built("gpt2"), sequences("gpt2", n=6)
    found = checkpoint_sweep(model, data)
    row = found.costs()[3]
    assert (row.layer, row.head, row.n) == (0, 3, 6)
    change = found.ablated[3] - found.intact
    assert row.loss_increase == pytest.approx(change[:, 0].mean())
    assert row.drop == pytest.approx(-100 * change[:, 1].mean())
    assert row.loss_increase_low <= row.loss_increase <= row.loss_increase_high
    assert row.drop_low <= row.drop <= row.drop_high
    read = found.to_dict()
    assert read["loss"] == pytest.approx(plain(model, data)[:, 0].mean().item())
    assert len(read["heads"]) == 8


def test_some_layers_alone_are_changed():
    model, data = built("gpt2"), sequences("gpt2")
    whole, part = checkpoint_sweep(model, data), checkpoint_sweep(model, data, layers=slice(1, None))
    assert part.heads == whole.heads[4:]
    assert (part.ablated == whole.ablated[4:]).all()


def test_progress_counts_heads():
    told = []
    checkpoint_sweep(built("gpt2"), sequences("gpt2"), tokens=24, watch=told.append)
    assert told[-1] == Progress("ablate", 9, 9)
    assert [at.done for at in told] == sorted(at.done for at in told)


def test_what_cannot_be_measured_is_refused():
    gpt2, data = built("gpt2"), sequences("gpt2")
    with pytest.raises(UnsupportedError, match="GPT2Model predicts no tokens"):
        CheckpointSubject.of(gpt2.transformer)
    with pytest.raises(ConfigError, match="at least 2 of them; got 1"):
        checkpoint_sweep(gpt2, data[:1])
    with pytest.raises(ConfigError, match="layers must take at least one of 0 to 1; got none"):
        checkpoint_sweep(gpt2, data, layers=slice(2, 4))
    subject = CheckpointSubject.of(gpt2)
    for place in ((2, 0), (0, 4), (-1, 0)):
        with pytest.raises(ConfigError, match="the model has no head"):
            checkpoint_scores(subject, data, [(HeadAblation(*place),)])
    with pytest.raises(UnsupportedError, match="no rotary module"):
        checkpoint_scores(subject, data, [(HeadAblation(0, 0, "content-only"),)])
    with pytest.raises(UnsupportedError, match="'resample' needs sequences of one length"):
        checkpoint_sweep(gpt2, sequences("gpt2", ragged=True), fill="resample")


def test_heads_that_lead_nowhere_or_share_a_block_are_refused():
    model = FAMILIES["gpt2"]()
    with pytest.raises(UnsupportedError, match=r"no linear map after the heads of transformer.wte was found"):
        head_sites(model, {"transformer.wte": False})


def test_two_modules_of_one_layer_that_see_the_same_are_refused():
    model = FAMILIES["t5"]()
    with pytest.raises(UnsupportedError, match="two attention modules share a layer"):
        head_sites(model, dict.fromkeys(attending_modules(model), False))


def test_sequences_are_scored_where_they_have_targets():
    data = sequences("gpt2")
    assert torch.equal(data.targets[:, :-1], data.ids[:, 1:])
    assert (data.targets[:, -1] == UNSCORED).all()
    stages = CheckpointStages(
        CheckpointSubject.of(built("gpt2")), replace(data, targets=data.targets.clone())
    )
    stages.data.targets[:, :5] = UNSCORED
    with torch.no_grad():
        torch.testing.assert_close(stages.scores(2)[1], plain(stages.subject.model, stages.data))
