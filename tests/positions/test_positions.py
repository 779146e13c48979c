"""Rules that number tokens."""

import pytest
import torch

from spectrope.core.config import OneOf, to_dict
from spectrope.positions.arange import Arange
from spectrope.positions.base import POSITIONS


@pytest.mark.parametrize("name", list(POSITIONS))
def test_every_rule_reads_back_equal(name):
    rule = POSITIONS[name]()
    assert OneOf(POSITIONS).read(to_dict(rule)) == rule


def test_tokens_are_numbered_from_zero():
    pos = Arange()(3, 5, torch.device("cpu"))
    assert torch.equal(pos, torch.tensor([[0, 1, 2, 3, 4]]))
