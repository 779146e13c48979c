import importlib
import json
import math
import sys
import time

import numpy as np
import pytest
import torch

from spectrope.core import device
from spectrope.core.config import from_dict, strict_json
from spectrope.core.device import own_precision, seconds
from spectrope.core.errors import ConfigError, UnknownNameError
from spectrope.core.random import indexed_bits, indexed_integers
from spectrope.encodings.base import ENCODINGS
from spectrope.lab.training.scales import experiment
from spectrope.models.decoder import DecoderConfig


def test_an_unknown_name_suggests_the_nearest():
    with pytest.raises(UnknownNameError, match="unknown encoding 'nopee'; did you mean nope"):
        ENCODINGS["nopee"]


@pytest.fixture
def shapes(tmp_path, monkeypatch):
    """A registry of a package with two members, neither of which is imported yet."""
    package = tmp_path / "shapes"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "base.py").write_text(
        'from spectrope.core.registry import Registry\nSHAPES = Registry("shape", "shapes")\n'
    )
    for name in ("disc", "ring"):
        (package / f"{name}.py").write_text(
            f'from shapes.base import SHAPES\nclass Own: ...\nSHAPES.register("{name}", Own)\n'
        )
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("shapes.base").SHAPES
    for name in [name for name in sys.modules if name.partition(".")[0] == "shapes"]:
        del sys.modules[name]


class Stranger:
    pass


def test_a_name_of_the_package_is_refused_even_before_it_is_looked_up_and_nothing_is_lost(shapes):
    with pytest.raises(
        ConfigError, match=r"^shape 'ring' is shapes\.ring\.Own already; choose another name\.$"
    ):
        shapes.register("ring", Stranger)
    shapes.register("strange", Stranger)
    assert list(shapes) == ["disc", "ring", "strange"]
    assert shapes["ring"].__module__ == "shapes.ring"


@pytest.mark.parametrize("name", ["", "a/b", "two words", "file.py", "-n", "a+b"])
def test_a_name_that_no_file_could_have_is_refused(shapes, name):
    with pytest.raises(ConfigError, match="a name may only contain letters, digits, '-' and '_'"):
        shapes.register(name, Stranger)


def test_a_member_that_cannot_be_imported_is_named_at_every_lookup(shapes, tmp_path):
    broken = tmp_path / "shapes" / "broken.py"
    broken.write_text("1 / 0")
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            shapes["ring"]
    broken.write_text("")
    importlib.invalidate_caches()
    assert list(shapes) == ["disc", "ring"]


def test_bits_depend_on_their_index_alone():
    whole = indexed_bits(7, "words", np.arange(100), 5)
    part = indexed_bits(7, "words", np.arange(40, 60), 3)
    assert (whole[40:60, :3] == part).all()


def test_streams_and_seeds_differ():
    index = np.arange(50)
    draws = [indexed_bits(seed, stream, index, 4) for seed in (0, 1) for stream in ("a", "b")]
    assert len({tuple(draw.ravel()) for draw in draws}) == 4


def test_integers_are_uniform():
    values = indexed_integers(3, "x", np.arange(60_000), 1, 6).ravel()
    counts = np.bincount(values, minlength=6)
    chi2 = ((counts - 10_000) ** 2 / 10_000).sum()
    assert len(counts) == 6
    assert chi2 < 20.5  # 0.999 quantile of chi-squared with 5 degrees of freedom


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"encoding": 3}, r'^encoding must be a name, or fields with a "kind"; got 3\.$'),
        ({"encoding": {}}, r'^encoding must be a name, or fields with a "kind"; got \{\}\.$'),
        ({"encoding": "rop"}, r"^unknown encoding 'rop'; did you mean rope or mrope or drope\?$"),
        (
            {"encoding": "rope", "head_dim": 7},
            r"^RoPE\.Config\.head_dim must be even and positive; got 7\. ",
        ),
        ({"d_model": "x"}, r"^DecoderConfig\.d_model: Input should be a valid integer.*; got 'x'\.$"),
        ({"width": 3}, r"^DecoderConfig has no field 'width'\.$"),
        ({"n_layer": 3}, r"^DecoderConfig has no field 'n_layer'; did you mean n_layers"),
    ],
)
def test_a_configuration_that_cannot_be_read_gets_one_short_line(fields, message):
    with pytest.raises(ConfigError, match=message) as caught:
        from_dict(DecoderConfig, fields)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("native", [False, True])
def test_bfloat16_is_taken_where_the_processor_multiplies_it_itself(native, monkeypatch):
    monkeypatch.setattr(
        torch.cuda, "is_bf16_supported", lambda including_emulation=True: native or including_emulation
    )
    monkeypatch.setattr(device, "cpu_has_bfloat16", lambda: native)
    for place in ("cpu", "cuda"):
        chosen = device.choose_dtype("auto", torch.device(place))
        assert chosen is (torch.bfloat16 if native else torch.float32)
        assert device.choose_dtype("float32", torch.device(place)) is torch.float32


def test_products_keep_their_precision_where_they_should():
    x = torch.randn(3, 3)
    with torch.autocast("cpu", torch.bfloat16):
        assert (x @ x).dtype is torch.bfloat16
        with own_precision(x):
            assert (x @ x).dtype is torch.float32
        assert (x @ x).dtype is torch.bfloat16
    own_precision(x.to("meta"))


def test_json_has_no_word_for_what_is_not_finite():
    text = strict_json({"loss": math.inf, "times": [1.0, (math.nan, 2)], "name": "x"})
    assert json.loads(text) == {"loss": None, "times": [1.0, [None, 2]], "name": "x"}


def test_time_is_per_call(monkeypatch):
    clock = iter([100.0, 106.0])
    monkeypatch.setattr(time, "perf_counter", lambda: next(clock))
    done = []
    assert seconds(lambda: done.append(1), torch.device("cpu"), calls=3) == 2.0
    assert len(done) == 3


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (2, 1, 0)])
def test_changes_are_made_in_an_order_that_the_rules_allow(order):
    sizes = [("max_gap", 30), ("n_labels", 32), ("model.max_length", 60)]
    wanted = [*(sizes[place] for place in order), ("task.max_length", 60)]
    one = experiment("distance", "rope").with_(**dict(wanted))
    assert (one.task.max_gap, one.model.n_labels, one.model.max_length) == (30, 32, 60)
    with pytest.raises(ConfigError, match="Experiment has no field 'max_gup'"):
        experiment("distance", "rope").with_(max_gup=3, **dict(wanted))


@pytest.mark.parametrize("turned", [False, True])
def test_parts_are_changed_before_what_is_in_them(turned):
    changes = {"model.encoding.schedule": "yarn", "model.encoding.schedule.factor": 7.0}
    one = experiment("distance", "rope").with_(**{"model.encoding.schedule": "linear"})
    changed = one.with_(**dict(reversed(changes.items()) if turned else changes.items()))
    assert (changed.model.encoding.schedule.kind, changed.model.encoding.schedule.factor) == ("yarn", 7.0)
