"""Fills from a file of the user's own, and mistakes in them."""

import pytest
import torch
from tests.lab.ablation.models import decoder, examples, whole_layers
from tests.lab.ablation.test_engine import CLOSE, engine, one_by_one
from tests.lab.engines.test_local import tiny
from tests.own_files import run_no_file_yet
from torch.testing import assert_close

from spectrope.core.errors import ConfigError, UnknownNameError, UnsupportedError
from spectrope.core.foreign import digest_of
from spectrope.lab.ablation.fills.base import FILLS, LayerFill
from spectrope.lab.ablation.gather import data_means
from spectrope.lab.ablation.heads import ablated
from spectrope.lab.ablation.interventions import HeadAblation, single_heads
from spectrope.lab.ablation.methods import Adaptive, Cumulative, Exact, Screen, ablate, choose_protocol
from spectrope.lab.ablation.protocols import Protocol
from spectrope.lab.ablation.screening import screen
from spectrope.lab.job import train
from spectrope.lab.stamps import DIGEST
from spectrope.stats.sequential import TargetPrecision

CPU = torch.device("cpu")
FILE = '''
import torch
from spectrope.lab.ablation.fills.base import Fill, LayerFill

class Opposite(Fill, name="opposite"):
    """Minus the mean."""
    needs = frozenset({"means"})
    def output(self, site):
        return -site.means.outputs[:, None]

class Undeclared(Fill, name="undeclared"):
    def output(self, site):
        return site.donors

class Narrow(Fill, name="narrow"):
    def output(self, site):
        return site.outputs[..., :2]

class Idle(Fill, name="idle"):
    pass

class Silent(LayerFill, name="silent"):
    """The whole layer falls silent."""
    def layer_output(self, site, heads):
        return torch.zeros_like(site.outputs)

class Loud(LayerFill, name="loud"):
    def layer_output(self, site, heads):
        return 2 * site.outputs
'''


@pytest.fixture(autouse=True)
def file(tmp_path, monkeypatch):
    run_no_file_yet(monkeypatch)
    path = tmp_path / "fills.py"
    path.write_text(FILE)
    return path


def test_a_head_is_filled_by_a_class_in_a_file(file):
    ablation = HeadAblation(0, 1, f"{file}:Opposite")
    assert ablation == HeadAblation(0, 1, "opposite")
    model, data = decoder("alibi"), examples()
    variants, means = single_heads(model.config, f"{file}:Opposite"), data_means(model, data)
    assert_close(engine(model, data, variants), one_by_one(model, data, variants, means=means), **CLOSE)
    seen = []
    hook = model.blocks[0].out.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    with torch.inference_mode(), ablated(model, ablation, means=means):
        model(data)
    hook.remove()
    head = seen[0].unflatten(-1, (4, 6))[:, :, 1]
    assert_close(head, (-means[0].outputs[1]).to(head.dtype).expand_as(head))


def test_a_fill_may_change_a_whole_layer(file):
    model, data = decoder(), examples(6)
    silent = whole_layers(model.config)
    variants = [(HeadAblation(layer, 2, f"{file}:Silent"),) for layer in range(3)]
    assert_close(engine(model, data, variants), engine(model, data, silent), **CLOSE)
    assert_close(one_by_one(model, data, variants), engine(model, data, silent), **CLOSE)
    two = (HeadAblation(1, 0, "silent"), HeadAblation(1, 1, f"{file}:Loud"))
    with pytest.raises(UnsupportedError, match="fills loud and silent each change a whole layer; use one"):
        engine(model, data, [two])


def test_tables_are_called_like_the_fill_and_say_which_file_made_them(file, tmp_path):
    run, spec = train(tiny(), tmp_path / "runs", CPU), f"{file}:Opposite"
    protocol = Protocol(fill=spec)
    methods = {
        "ablation-opposite": Exact(protocol=protocol),
        "adaptive-within-50-opposite": Adaptive(
            aim=TargetPrecision(0.5), protocol=choose_protocol("controlled", spec)
        ),
        "cumulative-opposite": Cumulative(protocol=protocol),
        "screen-opposite": Screen(fill=spec),
    }
    for name, method in methods.items():
        assert name in ablate(run, CPU, method)
        assert set(run.frame(name)[DIGEST]) == {digest_of(FILLS["opposite"])}
    assert run.frame("deposit-opposite")[DIGEST].n_unique() == 1
    assert set(run.frame("ablation-opposite")["fill"]) == {"opposite"}
    assert DIGEST not in ablate(run, CPU)["ablation"].columns


def test_first_order_estimates_take_it(file):
    model, data = decoder(dtype=torch.float32), examples()
    found = screen(model, data, fill=f"{file}:Opposite")
    assert found.fill == "opposite"
    assert (found.loss_increase_estimate != screen(model, data).loss_increase_estimate).all()


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("Undeclared", r"this fill takes donors and was given none: .* by needs = frozenset\(\{'donors'\}\)"),
        ("Narrow", r"fill 'narrow' must broadcast to \(\d+, 4, \d+, 6\) \(b, h, i, k\); got \(.*, 2\)"),
        ("Idle", r"fills\.py:Idle defines no output, which every fill has"),
    ],
)
def test_mistakes_get_one_line(file, name, told):
    model, data = decoder(), examples(3)
    with pytest.raises((ConfigError, UnsupportedError), match=told):
        engine(model, data, [(HeadAblation(0, 0, f"{file}:{name}"),)])


@pytest.mark.parametrize("make", [lambda fill: HeadAblation(0, 0, fill), lambda fill: Protocol(fill=fill)])
def test_unknown_fills_get_a_suggestion(make):
    with pytest.raises(UnknownNameError, match="unknown fill 'positon-only'; did you mean position-only"):
        make("positon-only")


def test_means_that_were_not_given_are_asked_for():
    with pytest.raises(UnsupportedError, match=r"takes means and was given none: .* takes them as means="):
        one_by_one(decoder(), examples(3), [(HeadAblation(0, 0, "mean"),)])


def test_every_registered_fill_has_the_shape_of_the_heads_or_changes_layers():
    model, data = decoder(), examples(5)
    for name in FILLS:
        if not issubclass(FILLS[name], LayerFill):
            changed = engine(model, data, single_heads(model.config, name))
            assert changed.isfinite().all()
