"""Ablation, ablated heads and spectra from Python: of runs, decoders, Hugging Face models, own models."""

import copy
import re

import numpy as np
import pytest
import torch
from tests.checkpoints.adapters.own_models import LENGTH, VOCABULARY, MiniGPT
from tests.checkpoints.audit.families import FAMILIES
from tests.front.made import SMALL
from torch import nn

import spectrope as sp
from spectrope.checkpoints.ablation.subject import CheckpointSubject
from spectrope.checkpoints.ablation.sweep import checkpoint_scores
from spectrope.checkpoints.language import task_sequences
from spectrope.core.errors import ConfigError, UnsupportedError
from spectrope.front.targets import opened
from spectrope.lab.ablation.interventions import HeadAblation
from spectrope.lab.ablation.methods import Cumulative
from spectrope.tasks.base import Batch


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return sp.train("rope", root=tmp_path_factory.mktemp("front") / "runs", **SMALL)


@pytest.fixture(scope="module")
def llama():
    torch.manual_seed(0)
    return FAMILIES["llama-default"]().eval()


def own(**options):
    torch.manual_seed(0)
    return sp.OwnModel(MiniGPT(**options).eval(), vocabulary=VOCABULARY, max_length=LENGTH)


def refused(block, error, message):
    """Enter a block that is refused at once."""
    with pytest.raises(error, match=message), block:
        pass


def hooks(model) -> int:
    return sum(len(module._forward_pre_hooks) + len(module._forward_hooks) for module in model.modules())


def fail():
    raise ZeroDivisionError


class TestAblate:
    def test_a_run_keeps_its_tables(self, run):
        result = sp.ablate(run, examples=10, fill="mean", watch=sp.unwatched)
        assert list(result.tables) == ["ablation-mean-10-examples", "deposit-mean-10-examples"]
        assert result.to_frame().equals(run.frame("ablation-mean-10-examples"))
        assert "Drops in percentage points; layers and heads count from 0" in repr(result)
        told = " ".join(repr(result).split())
        assert "95 % interval over the n examples, of each head of this one model by itself." in told

    def test_a_run_may_be_named(self, run):
        named = sp.ablate(run.id[:6], root=run.path.parent, examples=10, watch=sp.unwatched)
        assert named.to_frame().equals(sp.ablate(run.path, examples=10, watch=sp.unwatched).to_frame())

    def test_it_is_drawn_as_a_heat_map(self, run, llama, tmp_path):
        of_run = sp.ablate(run, examples=10, watch=sp.unwatched)
        of_model = sp.ablate(llama, examples=4, length=8, watch=sp.unwatched)
        for result in (of_run, of_model):
            assert sp.figure(result).spec == result.figure().spec
            assert "<svg" in result.figure().save(tmp_path / "map.svg").read_text()
        with pytest.raises(ConfigError, match="an ablation only has the figure 'heatmap'; got 'loss'"):
            sp.figure(of_model, "loss")
        greedy = sp.ablate(run, method=Cumulative(examples=10), watch=sp.unwatched)
        with pytest.raises(UnsupportedError, match=r"sp\.figure\(run, 'cumulative'\) draws what it does"):
            greedy.figure()

    def test_a_tokenizer_is_one_of_the_library(self, llama):
        with pytest.raises(ConfigError, match="tokenizer must be one of transformers; got a function"):
            opened(llama, "runs", "cpu", lambda text: text)

    def test_a_module_is_measured_where_it_is(self, llama):
        elsewhere = copy.deepcopy(llama).to("meta")
        assert opened(elsewhere, "runs", "auto", None)[0] is elsewhere
        assert {one.device.type for one in elsewhere.parameters()} == {"meta"}
        with pytest.raises(
            ConfigError, match=r"measured where it is; it is on 'meta', got 'cpu'\. Move it first"
        ):
            sp.ablate(elsewhere, device="cpu")

    def test_a_method_is_an_object(self, run):
        result = sp.ablate(run, method=Cumulative(examples=10), watch=sp.unwatched)
        assert list(result.tables) == ["cumulative-10-examples"]
        with pytest.raises(ConfigError, match="fill is for ablation without a method; the method"):
            sp.ablate(run, method=Cumulative(), fill="mean")

    def test_a_model_is_scored_on_a_task_or_on_tokens(self, llama):
        result = sp.ablate(llama, examples=4, length=16, layers=slice(1, 2), watch=sp.unwatched)
        assert result.to_frame().select("layer", "head").rows() == [(1, head) for head in range(4)]
        assert result.on == "induction"
        ids = torch.randint(5, 50, (3, 12), generator=torch.Generator().manual_seed(0))
        scored = sp.ablate(llama, on=ids, watch=sp.unwatched)
        with torch.no_grad():
            logits = llama(input_ids=ids).logits[:, :-1]
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()).item()
        assert scored.sweep.loss == pytest.approx(loss, rel=1e-5)
        assert "tokens: loss" in repr(scored)

    def test_a_checkpoint_is_opened(self, llama, tmp_path):
        llama.save_pretrained(tmp_path)
        options = {"examples": 4, "length": 8, "watch": sp.unwatched}
        assert sp.ablate(tmp_path, **options).to_frame().equals(sp.ablate(llama, **options).to_frame())
        assert type(sp.load_model(tmp_path)) is type(llama)

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"on": "induction"}, "on is for models; run .* has its own task"),
            ({"length": 8}, "length is for models"),
            ({"batch": 8}, "batch is for models"),
            ({"layers": slice(1)}, "layers is for models"),
            ({"threshold": 5.0}, "threshold is for models; for a run, use Adaptive"),
        ],
    )
    def test_what_is_for_models_is_refused_with_a_run(self, run, arguments, message):
        with pytest.raises(ConfigError, match=message):
            sp.ablate(run, **arguments)

    def test_mistakes_are_one_line(self, llama, tmp_path):
        with pytest.raises(ConfigError, match="method of a model must be one of exact, adaptive, screened"):
            sp.ablate(llama, method=Cumulative())
        with pytest.raises(ConfigError, match="threshold is for methods that call heads; 'exact' measures"):
            sp.ablate(llama, threshold=5.0)
        with pytest.raises(ConfigError, match="threshold must be above 0 and below 100 points; got 100"):
            sp.ablate(llama, method="adaptive", threshold=100.0)
        with pytest.raises(ConfigError, match="got 'value-bias'"):
            sp.ablate(llama, fill="value-bias")
        with pytest.raises(ConfigError, match="texts need the model's tokenizer"):
            sp.ablate(llama, on=["a b c"])
        with pytest.raises(ConfigError, match="at least two tokens; got 1"):
            sp.ablate(llama, on=torch.ones(2, 1, dtype=torch.long))
        with pytest.raises(ConfigError, match="the name of a run or a checkpoint; got a int"):
            opened(42, tmp_path, "cpu", None)
        with pytest.raises(ConfigError, match="is neither a run in"):
            sp.ablate("nothing", root=tmp_path)
        with pytest.raises(UnsupportedError, match="Linear is no Hugging Face model; say where"):
            sp.ablate(nn.Linear(2, 2))


class TestAblated:
    def test_heads_of_a_decoder_are_silenced_and_come_back(self, run):
        model = sp.load_model(run)
        ids, lengths = torch.randint(1, 9, (2, 8)), torch.tensor([8, 8])
        data = Batch(ids, torch.zeros(2, dtype=torch.long), lengths)
        with torch.no_grad():
            before = model(data)
            with sp.ablated(model, [(1, 3)]) as changed:
                assert changed is model
                silenced = model(data)
            after = model(data)
        assert torch.equal(before, after)
        assert not torch.equal(before, silenced)

    def test_heads_of_a_hugging_face_model_cost_what_the_sweep_says(self, llama):
        data = task_sequences(llama, "induction", 4, 16)
        subject = CheckpointSubject.of(llama)
        heads = [(0, 2), (1, 1)]
        variant = tuple(HeadAblation(*head) for head in heads)
        expected = checkpoint_scores(subject, data, [variant])[0, :, 0]
        with torch.no_grad(), sp.ablated(llama, heads):
            logits = llama(input_ids=data.ids).logits
        losses = nn.functional.cross_entropy(logits.mT, data.targets, ignore_index=-100, reduction="none")
        found = losses.sum(1) / data.scored.sum(1)
        np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-5)

    @pytest.mark.parametrize("name", ["gpt2", "bert", "bloom"])
    def test_it_is_undone_whatever_happens(self, name):
        model = FAMILIES[name]().train()
        modes = [module.training for module in model.modules()]
        with sp.ablated(model, [(0, 0)]):
            assert hooks(model) == 1
        with pytest.raises(ZeroDivisionError), sp.ablated(model, [(0, 0)]):
            fail()
        assert hooks(model) == 0
        assert [module.training for module in model.modules()] == modes

    def test_heads_of_two_stacks_are_named_with_their_role(self):
        model = FAMILIES["t5"]().eval()
        ids = torch.randint(5, 50, (2, 6))
        with torch.no_grad():
            before = model(input_ids=ids, decoder_input_ids=ids).logits
            with sp.ablated(model, [("cross", 1, 0)]):
                changed = model(input_ids=ids, decoder_input_ids=ids).logits
        assert not torch.equal(before, changed)
        refused(
            sp.ablated(model, [(0, 0)]), ConfigError, r"named \(role, layer, head\) with a role of encoder"
        )

    def test_gradients_flow_but_not_through_silenced_heads(self):
        model = own(how="sdpa")
        with sp.ablated(model, [(1, 2)]):
            model.model(torch.randint(6, 16, (2, 5))).sum().backward()
        gradient = model.model.blocks[1].attention.out.weight.grad
        assert bool((gradient[:, 16:24] == 0).all())
        assert bool((gradient[:, :16] != 0).any())

    def test_one_pair_is_one_head(self, llama):
        with sp.ablated(llama, (0, 1)):
            assert hooks(llama) == 1
        assert hooks(llama) == 0

    @pytest.mark.parametrize("heads", [[(0.5, 1)], [(True, 1)], [()]])
    def test_heads_are_pairs_of_numbers(self, llama, heads):
        refused(
            sp.ablated(llama, heads), ConfigError, r"heads must be pairs of layer and head, such as \[\(0, 3"
        )

    def test_mistakes_are_one_line(self, llama, run):
        for head in ((2, 0), (0, 4), (-1, 0)):
            message = rf"no head \({head[0]}, {head[1]}\); layers are 0 to 1, heads 0 to 3"
            with pytest.raises(ConfigError, match=message), sp.ablated(llama, [head]):
                pass
        refused(sp.ablated(llama, [(0, 1, 2)]), ConfigError, r"named \(layer, head\); got \(0, 1, 2\)")
        decoder = sp.load_model(run)
        refused(sp.ablated(decoder, [(1,)]), ConfigError, r"named \(layer, head\); got \(1,\)")
        refused(sp.ablated(decoder, [(3, 0)]), ConfigError, r"layer must be between 0 and 2; got 3")
        with pytest.raises(UnsupportedError, match="a Decoder has no data by itself; give its run"):
            sp.ablate(decoder)
        refused(sp.ablated(nn.Linear(2, 2), [(0, 0)]), UnsupportedError, "Linear is no Hugging Face model")


class TestSpectrum:
    def test_a_run_keeps_its_tables(self, run):
        result = sp.spectrum(run, examples=8, draws=9, watch=sp.unwatched)
        assert result.to_frame().equals(run.frame(f"spectrum{result.mark}"))
        assert "mean Toeplitz share of the heads of a layer" in repr(result)
        assert result._repr_html_().count("<table>") >= 3

    def test_an_encoding_goes_by_name_configuration_or_module(self):
        config = sp.encodings.ALiBi.Config(n_heads=2)
        by_name = sp.spectrum("alibi", length=16, heads=2).to_frame()
        assert sp.spectrum(config, length=16, heads=2).to_frame().equals(by_name)
        assert sp.spectrum(sp.encodings.ALiBi(config), length=16).to_frame().equals(by_name)

    def test_a_model_is_measured_on_tokens(self):
        ids = torch.randint(6, 16, (4, 12), generator=torch.Generator().manual_seed(0))
        rows = sp.spectrum(own(), on=ids, draws=9, watch=sp.unwatched).to_frame()
        assert rows["positions"].unique().to_list() == [12]
        assert rows.height == 8

    @pytest.mark.parametrize(
        ("target", "arguments", "message"),
        [
            ("rope", {"draws": 9}, "draws is for runs or models; an encoding has no content"),
            ("rope", {"length": 1}, "length must be at least 2; got 1"),
            ("rope", {"heads": 0}, "heads must be at least 1; got 0"),
            (own(), {"heads": 2}, "heads is for encodings; a model has its own"),
            (own(), {"draws": 0}, "draws must be at least 1; got 0"),
            (own(), {"examples": 1}, "examples must be at least 2; got 1"),
            (own(), {"on": ["a", "b"]}, "texts need the model's tokenizer"),
        ],
    )
    def test_mistakes_are_one_line(self, target, arguments, message):
        with pytest.raises(ConfigError, match=message):
            sp.spectrum(target, **arguments)

    def test_what_is_for_models_is_refused_with_a_run(self, run):
        with pytest.raises(ConfigError, match=re.escape("length is for models; run")):
            sp.spectrum(run, length=8)
