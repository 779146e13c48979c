"""What encodings cost: which work is counted, not how long it takes."""

import gc

import pytest
import torch

from spectrope.attention import cost
from spectrope.attention.cost import EncodingCost, Ratio, UncostedEncoding, batch_size, costs
from spectrope.core.errors import ConfigError, UnknownNameError

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def briefly(monkeypatch):
    monkeypatch.setattr(cost, "REPEATS", 2)
    monkeypatch.setattr(cost, "SAMPLE_SECONDS", 0.0)


def test_encodings_of_every_form_are_measured():
    names = ("nope", "learned", "rope", "alibi", "cope", "shaw", "path")
    found = list(costs(names, 8, CPU))
    assert [one.encoding for one in found] == list(names)
    for one in found:
        assert isinstance(one, EncodingCost)
        assert one.forward.low <= one.forward.median <= one.forward.high
        assert one.memory == pytest.approx(one.mib / found[0].mib)
        assert one.memory > 1 or one.encoding == "nope"


def test_the_peak_counts_what_lives_at_once_and_views_not_at_all():
    with cost.Allocations() as seen:
        a = torch.zeros(1000)
        b = a.view(10, 100).mT + 1
        del a
        gc.collect()
        c = (b + 1)[0]
        b.add_(1)
        torch.add(b, 1, out=b)
    assert seen.peak == 2 * 4000
    assert seen.held == 8000
    assert c.shape == (10,)


def test_a_bias_of_every_pair_needs_memory_for_every_pair():
    nope, cable, rope = costs(("nope", "cable", "rope"), 64, CPU)
    pairs = batch_size(64) * 16 * 64 * 64 * 4 / 2**20
    assert cable.mib > nope.mib + pairs
    assert rope.mib < nope.mib + pairs


def test_long_sequences_come_in_smaller_batches():
    assert [batch_size(length) for length in (1, 128, 129, 256, 4096)] == [8, 8, 7, 2, 1]


def test_ratios_are_of_pairs():
    assert Ratio.of([2.0, 6.0, 20.0], [1.0, 2.0, 5.0]) == Ratio(3.0, 2.5, 3.5)


def test_what_cannot_be_built_says_why_and_the_rest_goes_on(monkeypatch):
    def refuse(name, length):
        raise ConfigError("no.")

    monkeypatch.setattr(cost, "_built", refuse)
    assert list(costs(("rope",), 8, CPU)) == [UncostedEncoding("rope", "no.")]


def test_unknown_names_and_lengths_are_refused_before_anything_is_timed():
    with pytest.raises(UnknownNameError, match="did you mean rope"):
        next(costs(("nope", "ropee"), 8, CPU))
    with pytest.raises(ConfigError, match=r"length must be at least 1; got 0\."):
        next(costs(("nope",), 0, CPU))
