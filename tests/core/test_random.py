"""Indexed draws and subsets: exact in law, and the same whatever else is drawn."""

import itertools

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from spectrope.core.random import indexed_draws, indexed_subsets

LEVEL = 1e-3  # significance of each goodness-of-fit test; the streams are seeded, so none is flaky


def frequencies(rows: np.ndarray, outcomes: list[tuple[int, ...]]) -> list[int]:
    """How often each outcome occurs among the rows; every row must be one of them."""
    place = {outcome: i for i, outcome in enumerate(outcomes)}
    return np.bincount([place[tuple(row)] for row in rows.tolist()], minlength=len(outcomes)).tolist()


@pytest.mark.parametrize("draws", [1, 2, 3, 4])
def test_all_ordered_draws_are_equally_likely(draws):
    pool = np.array([2, 3, 5, 7])
    rows = indexed_draws(1, "words", np.arange(24_000), draws, pool)
    counts = frequencies(rows, list(itertools.permutations(pool.tolist(), draws)))
    assert scipy.stats.chisquare(counts).pvalue > LEVEL


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_all_subsets_of_a_size_are_equally_likely(size):
    taken = indexed_subsets(2, "places", np.arange(20_000), np.full(20_000, size), 5)
    rows = [np.flatnonzero(row) for row in taken]
    counts = frequencies(np.array(rows).reshape(20_000, size), list(itertools.combinations(range(5), size)))
    assert scipy.stats.chisquare(counts).pvalue > LEVEL


@given(
    size=st.integers(1, 40),
    share=st.floats(0, 1),
    start=st.integers(0, 2**40),
    seed=st.integers(0, 2**32 - 1),
)
def test_draws_repeat_nothing_and_depend_on_their_index_alone(size, share, start, seed):
    pool, draws, index = np.arange(100, 100 + size), max(1, round(share * size)), start + np.arange(9)
    whole = indexed_draws(seed, "words", index, draws, pool)
    assert (whole[4:7] == indexed_draws(seed, "words", index[4:7], draws, pool)).all()
    assert all(len(set(row)) == draws and set(row) <= set(pool) for row in whole.tolist())


@given(
    sizes=st.lists(st.integers(0, 30), min_size=1, max_size=9),
    start=st.integers(0, 2**40),
    seed=st.integers(0, 2**32 - 1),
)
def test_subsets_have_their_sizes_and_depend_on_their_index_alone(sizes, start, seed):
    sizes, index = np.array(sizes), start + np.arange(len(sizes))
    taken = indexed_subsets(seed, "places", index, sizes, 30)
    assert (taken.sum(1) == sizes).all()
    assert (taken[-1:] == indexed_subsets(seed, "places", index[-1:], sizes[-1:], 30)).all()
