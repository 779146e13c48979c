"""Sums that a calculator knows, and positions that say which digits belong together."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spectrope.core.errors import ConfigError
from spectrope.tasks.addition import EQUALS, PLUS, ZERO, Addition
from spectrope.tasks.base import Batch


def task(**fields) -> Addition:
    return Addition(Addition.Config(**fields))


def unchecked(**fields: str) -> None:
    """Make a configuration as a caller without type checks does."""
    config = object.__new__(Addition.Config)
    for name, value in ({"n_digits": 8, "ids": "coupled"} | fields).items():
        object.__setattr__(config, name, value)
    config.__post_init__()


def number(tokens: list[int]) -> int:
    """What digits say, highest first."""
    return int("".join(str(token - ZERO) for token in tokens))


@given(n_digits=st.integers(1, 12), seed=st.integers(0, 2**31))
def test_the_next_digit_is_that_of_python_s_sum(n_digits, seed):
    batch = task(n_digits=n_digits).sample(5, seed)
    for row, length, label in zip(
        batch.inputs.tolist(), batch.lengths.tolist(), batch.labels.tolist(), strict=True
    ):
        assert (row[n_digits], row[2 * n_digits + 1]) == (PLUS, EQUALS)
        a, b = row[:n_digits], row[n_digits + 1 : 2 * n_digits + 1]
        total = str(number(a[::-1]) + number(b[::-1])).zfill(n_digits + 1)[::-1]
        shown = [token - ZERO for token in row[2 * n_digits + 2 : length]]
        assert shown == [int(digit) for digit in total[: len(shown)]]
        assert label == int(total[len(shown)])


def test_a_carry_runs_through():
    # 9 9 9 + 0 0 1 = 0 0 0 1, of which three digits are given.
    row = [*[10] * 3, PLUS, 2, 1, 1, EQUALS, 1, 1, 1]
    batch = Batch(torch.tensor([row]), torch.tensor([1]), torch.tensor([11]))
    assert task(n_digits=3).solve(batch, seed=0).tolist() == [1]


def test_positions_couple_the_digits_of_one_weight():
    batch = task(n_digits=3).sample(20, 0)
    assert batch.positions is not None
    for ids, length in zip(batch.positions.tolist(), batch.lengths.tolist(), strict=True):
        assert ids[:length] == [1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3][:length]


def test_coupled_digits_have_one_weight():
    batch = task(n_digits=4).sample(50, 1)
    assert batch.positions is not None
    for row, ids, length in zip(batch.inputs, batch.positions, batch.lengths, strict=True):
        parts = [range(4), range(5, 9), range(10, int(length))]
        values = [sum(int(row[i] - ZERO) * 10 ** int(ids[i] - 1) for i in part) for part in parts]
        given = int(length) - 10
        assert values[2] == (values[0] + values[1]) % 10**given


def test_the_model_may_number_tokens_itself():
    assert task(ids="index").sample(3, 0).positions is None


def test_impossible_configurations_are_refused():
    with pytest.raises(ConfigError, match="n_digits must be at least 1; got 0"):
        Addition.Config(n_digits=0)
    with pytest.raises(ConfigError, match="ids must be 'coupled' or 'index'; got 'none'"):
        unchecked(ids="none")
