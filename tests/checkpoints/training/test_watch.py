"""The hook while training: what it records, what it costs nothing of, and when it speaks."""

import copy
import math
import sys
import warnings

import pytest
import torch
import transformers
from tests.checkpoints.audit.families import FAMILIES, ROPES, llama
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

import spectrope as sp
from spectrope.checkpoints.training.watch import EncodingMovedError
from spectrope.core import ConfigError, SpectropeWarning
from spectrope.spectral import toeplitz_shares

IDS = torch.randint(5, 60, (2, 40), generator=torch.Generator().manual_seed(0))


@pytest.fixture
def model():
    return llama(rope_parameters=ROPES["default"]).train()


def change_base(model, base):
    """Rotary tables of another base, as a cache that is shared between models gives."""
    config = copy.deepcopy(model.config)
    config.rope_parameters = ROPES["default"] | {"rope_theta": base}
    model.model.rotary_emb = LlamaRotaryEmbedding(config)


def train(model, watch, steps, at=None, act=None, ids=IDS, **given):
    """Gradient steps with one call of the watch each; `act` runs before step `at`."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    losses = []
    for step in range(steps):
        if step == at and act is not None:
            act(model)
        loss = model(input_ids=ids, labels=ids, **given).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        watch.step()
    return losses


FAMILIES_READ = [
    "llama-yarn",
    "gpt_neox",
    "gptj",
    "bloom",
    "smollm3",
    "gemma3",
    "phi3",
    "qwen3",
    "gpt2",
    "t5",
]


@pytest.mark.parametrize("family", FAMILIES_READ)
def test_training_as_it_should_be_raises_no_alarm(family):
    model = FAMILIES[family]().train()
    with sp.watch_training(model, every=1, on_move="stop") as watch:
        train(model, watch, 2)
    assert not watch.moves
    assert len(watch.records) == 2
    assert all(math.isfinite(value) for value in watch.records[0].values())


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_losses_are_those_of_training_without_it(model, implementation):
    model.set_attn_implementation(implementation)
    other = copy.deepcopy(model)
    with sp.watch_training(model, every=1) as watch:
        watched = train(model, watch, 3)
    with sp.watch_training(other, every=10**6) as idle:
        idle.steps = 1
        assert train(other, idle, 3) == watched
        assert not idle.records


def test_no_forward_pass_is_added(model):
    calls = []
    with sp.watch_training(model, every=1) as watch:
        handle = model.model.layers[0].register_forward_hook(lambda *_: calls.append(1))
        train(model, watch, 3)
        handle.remove()
    assert len(calls) == 3


def test_hooks_are_removed(model):
    functions = transformers.modeling_utils.ALL_ATTENTION_FUNCTIONS
    before = dict(functions._local_mapping)
    with sp.watch_training(model, every=1) as watch:
        train(model, watch, 1)
    assert not [m for m in model.modules() if m._forward_hooks or m._forward_pre_hooks]
    assert functions._local_mapping == before


def test_a_base_that_changes_half_way_warns_once_at_its_step(model):
    with sp.watch_training(model, every=1) as watch, pytest.warns(SpectropeWarning) as told:
        train(model, watch, 6, at=3, act=lambda model: change_base(model, 1e4))
    assert [(move.step, move.layer, move.finding.code) for move in watch.moves] == [
        (3, "0", "SPE101"),
        (3, "1", "SPE101"),
    ]
    [warning] = told
    assert "step 3, layer 0: SPE101 base: 500000 at the start, 10000 effective" in str(warning.message)


def test_it_stops_where_it_is_told_to(model):
    with (
        sp.watch_training(model, every=1, on_move="stop") as watch,
        pytest.raises(EncodingMovedError, match="step 2, layer 0: SPE101 base: 500000 at the start, 10000"),
    ):
        train(model, watch, 6, at=2, act=lambda model: change_base(model, 1e4))
    assert watch.steps == 3


def test_with_more_steps_between_it_is_the_next_measured_one(model):
    with sp.watch_training(model, every=4) as watch, pytest.warns(SpectropeWarning, match="step 4"):
        train(model, watch, 6, at=1, act=lambda model: change_base(model, 1e4))
    assert [record["step"] for record in watch.records] == [0, 4]


def test_in_bfloat16_a_changed_base_is_seen_and_nothing_else(model):
    rotary = model.model.rotary_emb
    model = model.to(torch.bfloat16)
    model.model.rotary_emb = rotary.float()  # which mixed precision keeps so
    with sp.watch_training(model, every=1) as watch, pytest.warns(SpectropeWarning, match="step 2"):
        train(model, watch, 4, at=2, act=lambda model: change_base(model, 1e4))
    assert {move.step for move in watch.moves} == {2}


def test_autocast_raises_no_alarm(model):
    with sp.watch_training(model, every=1, on_move="stop") as watch:
        for _ in range(2):
            with torch.autocast("cpu", torch.bfloat16):
                model(input_ids=IDS, labels=IDS).loss.backward()
            watch.step()
    assert len(watch.records) == 2


def test_lost_slopes_are_named(monkeypatch):
    model = FAMILIES["bloom"]().train()
    home = sys.modules[type(model).__module__]
    slopes = home._get_alibi_slopes

    def halve(_):
        monkeypatch.setattr(home, "_get_alibi_slopes", lambda *given: 0.5 * slopes(*given))

    with sp.watch_training(model, every=1) as watch, pytest.warns(SpectropeWarning, match="step 1"):
        train(model, watch, 2, at=1, act=halve)
    assert {move.finding.code for move in watch.moves} == {"SPE301"}


def test_a_layer_without_rotation_that_turns_is_named():
    model = FAMILIES["smollm3"]().train()
    still = next(i for i, layer in enumerate(model.model.layers) if not layer.self_attn.use_rope)

    def turn(model):
        model.model.layers[still].self_attn.use_rope = True

    with (
        sp.watch_training(model, [(still, 0)], every=1) as watch,
        pytest.warns(SpectropeWarning, match="step 1"),
    ):
        train(model, watch, 2, at=1, act=turn)
    assert [move.finding.code for move in watch.moves] == ["SPE110"]


def turned_backwards(q, k, cos, sin, **_):
    return apply_rotary_pos_emb(q, k, cos, -sin)


def turned_in_adjacent_pairs(q, k, cos, sin, **_):
    cos, sin = (x[..., : x.shape[-1] // 2].repeat_interleave(2, -1)[:, None] for x in (cos, sin))
    return tuple(x * cos + rotate_adjacent(x) * sin for x in (q, k))


def rotate_adjacent(x):
    return torch.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2)


@pytest.mark.parametrize(
    ("turned", "says"),
    [(turned_backwards, "sense of rotation: 1 at the start, -1"), (turned_in_adjacent_pairs, "unknown")],
)
def test_another_rotation_half_way_is_a_move(model, monkeypatch, turned, says):
    def turn(_):
        monkeypatch.setattr(transformers.models.llama.modeling_llama, "apply_rotary_pos_emb", turned)

    with sp.watch_training(model, every=1) as watch, pytest.warns(SpectropeWarning, match=f"step 2.*{says}"):
        train(model, watch, 4, at=2, act=turn)
    assert {move.step for move in watch.moves} == {2}


def test_queries_that_become_zero_are_no_other_rotation(model):
    def erase(model):
        model.model.layers[0].self_attn.q_proj.weight.data.zero_()

    with sp.watch_training(model, every=1, on_move="stop") as watch:
        train(model, watch, 2, at=1, act=erase)
    assert len(watch.records) == 2


def test_a_layer_whose_terms_are_not_watched_is_named():
    model = FAMILIES["t5"]().train()
    with sp.watch_training(model, every=1) as watch:
        model(input_ids=IDS, decoder_input_ids=IDS)
        with pytest.warns(SpectropeWarning, match="cannot be detected in layers .*, encoder 0, encoder 1"):
            watch.step()


def test_a_layer_whose_moves_would_not_be_seen_is_named():
    model = FAMILIES["deepseek_v3"]().train()
    with (
        sp.watch_training(model, every=1) as watch,
        pytest.warns(SpectropeWarning, match="cannot be detected in layers 0"),
    ):
        train(model, watch, 2)


def test_packed_positions_raise_no_alarm(model):
    positions = torch.cat([torch.arange(24), torch.arange(16)]).expand(2, -1)
    with sp.watch_training(model, every=1, on_move="stop") as watch:
        train(model, watch, 2, position_ids=positions)
    assert len(watch.records) == 2


def test_evaluation_is_not_recorded(model):
    with sp.watch_training(model, every=1) as watch:
        model.eval()
        for _ in range(2):  # It is said once.
            model(input_ids=IDS)
            with warnings.catch_warnings(record=True, action="always") as told:
                assert watch.step() == []
            said = [str(one.message) for one in told]
            assert len(said) == (watch.steps == 1)
            assert all("nothing was measured in step 0: no forward pass" in one for one in said)
        model.train()
    assert not watch.records
    assert model.training


def test_numbers_are_those_of_the_heads(model):
    """Against the definitions, from the queries and keys that the model's own projections give."""
    kept = {}
    attention = model.model.layers[1].self_attn
    handles = [
        getattr(attention, name).register_forward_hook(
            lambda *given, name=name: kept.update({name: given[2]})
        )
        for name in ("q_proj", "k_proj")
    ]
    with sp.watch_training(model, [(1, 3)], every=1, positions=64) as watch:
        train(model, watch, 1)
    for handle in handles:
        handle.remove()
    q = kept["q_proj"][0].detach().unflatten(1, (4, 16))[:, 3].double()
    k = kept["k_proj"][0].detach().unflatten(1, (2, 16))[:, 1].double()
    [record] = watch.records
    assert record["layer_1/head_3/query_norm"] == pytest.approx(q.norm(dim=1).mean().item(), rel=1e-5)
    assert record["layer_1/head_3/key_norm"] == pytest.approx(k.norm(dim=1).mean().item(), rel=1e-5)
    bands = [record[f"layer_1/head_3/band_{i}"] for i in range(4)]
    assert sum(bands) == pytest.approx(1)
    angle = torch.arange(40.0)[:, None].double() * 5e5 ** (-torch.arange(8.0).double() / 8)
    turned = [torch.polar(torch.ones_like(angle), angle) * torch.complex(x[:, :8], x[:, 8:]) for x in (q, k)]
    logits = (turned[0] @ turned[1].mH).real / 4
    pattern = logits.masked_fill(torch.ones(40, 40).triu(1).bool(), -torch.inf).softmax(-1)
    distance = torch.arange(40)[:, None] - torch.arange(40)
    reach = (pattern * distance).sum(1).mean().item()
    assert record["layer_1/head_3/reach"] == pytest.approx(reach, rel=1e-4)
    share = toeplitz_shares(logits, causal=True).gauge_fixed.item()
    assert record["layer_1/head_3/toeplitz_share"] == pytest.approx(share, rel=1e-4)


def test_a_plain_module_is_watched():
    blocks = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), 2)
    plain = torch.nn.Sequential(torch.nn.Embedding(60, 32), blocks, torch.nn.Linear(32, 60))
    own = sp.OwnModel(plain, max_length=64).train()
    with sp.watch_training(own, every=1, on_move="stop") as watch:
        own(IDS).logits.sum().backward()
        watch.step()
    assert "layer_1/head_0/reach" in watch.records[0]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"every": 0}, "got every=0, positions=64"),
        ({"positions": 4}, "got every=20, positions=4"),
        ({"on_move": "cry"}, "must be 'stop' or 'warn'; got 'cry'"),
        ({"heads": [(7, 0)]}, "must name layers with attention, 0, 1; got layer 7"),
        ({"heads": [(1, 9)]}, "layer 1 has 4 heads; got head 9"),
    ],
)
def test_a_mistake_gets_one_line(model, given, message):
    with pytest.raises(ConfigError, match=message):
        sp.watch_training(model, **given)


def trained(model, tmp_path, watch, changes_at):
    """A run of the library's trainer on random tokens, in which the base changes at a step."""

    class Change(transformers.TrainerCallback):
        def on_step_begin(self, args, state, control, model, **_):
            if state.global_step == changes_at:
                change_base(model, 1e4)

    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path),
        max_steps=8,
        per_device_train_batch_size=1,
        gradient_accumulation_steps=2,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        save_strategy="no",
        logging_strategy="no",
    )
    data = [{"input_ids": row, "labels": row} for row in IDS.repeat(8, 1)]
    callbacks = [Change(), watch.callback()]
    trainer = transformers.Trainer(model=model, args=arguments, train_dataset=data, callbacks=callbacks)
    trainer.train()
    return trainer.state.global_step


def test_a_trainer_stops_after_the_step_in_which_the_base_changed(model, tmp_path):
    watch = sp.watch_training(model, every=1, on_move="stop")
    with pytest.warns(SpectropeWarning, match="step 4, layer 0: SPE101 base: 500000 at the start, 10000"):
        assert trained(model, tmp_path, watch, changes_at=4) == 5
    assert watch.steps == 5
    assert not model._forward_hooks


def test_a_trainer_goes_on_where_it_is_told_to_warn(model, tmp_path):
    watch = sp.watch_training(model, every=2, trackers=[sp.tracker("csv", tmp_path / "numbers")])
    with pytest.warns(SpectropeWarning, match="step 4, layer 0: SPE101 base: 500000 at the start, 10000"):
        assert trained(model, tmp_path, watch, changes_at=4) == 8
    lines = (tmp_path / "numbers" / "metrics.csv").read_text().splitlines()
    assert [line.split(",")[0] for line in lines if "head_0/reach" in line and "layer_0" in line] == list(
        "0246"
    )


def test_a_trainer_whose_base_stays_says_nothing(model, tmp_path):
    watch = sp.watch_training(model, every=1, on_move="stop")
    with warnings.catch_warnings():
        warnings.simplefilter("error", SpectropeWarning)
        assert trained(model, tmp_path, watch, changes_at=99) == 8
