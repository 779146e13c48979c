"""Quantities of heads: each is measured by its name, also one from a file of the user's own."""

import pytest
import torch
from tests.lab.ablation.models import decoder, examples

from spectrope.core.errors import ConfigError
from spectrope.lab.probes.heads import capture_heads
from spectrope.lab.probes.observed import ObservedLayer
from spectrope.lab.quantities.base import QUANTITIES, installed_quantities
from spectrope.lab.spectra.heads import Measurement

OWN = '''
from spectrope.lab.quantities import HeadQuantity


class Entry(HeadQuantity, name="first_entry"):
    """The first query's logit of the first key."""

    def values(self, layer):
        return layer.logits[..., 0, 0]
'''


@pytest.fixture
def forgetful(monkeypatch):
    """Takes back what a test registers."""
    monkeypatch.setattr(QUANTITIES, "_members", {name: QUANTITIES[name] for name in QUANTITIES})


def observed(name: str) -> ObservedLayer:
    layers = []
    capture_heads(decoder(name), examples(), layers.append)
    return ObservedLayer(layers[0], 4)


@pytest.mark.parametrize("quantity", installed_quantities())
def test_a_quantity_has_a_number_per_example_and_head_or_none(quantity):
    for name in ("rope", "alibi", "nope", "cope"):
        layer = observed(name)
        values = QUANTITIES[quantity]().values(layer)
        assert values is None or (values.shape == layer.logits.shape[:2] and values.dtype == torch.float64)
    assert QUANTITIES[quantity].__doc__.strip()
    assert bool(QUANTITIES[quantity].heading) == bool(QUANTITIES[quantity].caption)


def test_one_from_a_file_is_measured_only_where_it_is_asked_for(tmp_path, forgetful):
    (tmp_path / "entry.py").write_text(OWN)
    plan = Measurement(quantities=(f"{tmp_path}/entry.py:Entry",))
    assert plan.quantities == ("first_entry",)
    assert plan.names == (*installed_quantities(), "first_entry")
    assert "first_entry" not in Measurement().names
    assert plan.mark == Measurement().mark


def test_a_file_without_a_quantity_is_refused(tmp_path):
    (tmp_path / "none.py").write_text("class Entry: pass\n")
    with pytest.raises(ConfigError, match=r"is not registered as quantity"):
        Measurement(quantities=(f"{tmp_path}/none.py:Entry",))
