"""Random streams that depend only on names and indices, not on the order in which they are drawn."""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any

import numpy as np
import torch
from torch import nn

SEEDS = 2**63  # All lie below: tables have room for no larger whole number.


def stream_seed(seed: int, *names: object) -> int:
    """A 63-bit seed for the stream that `names` denote under `seed`."""
    text = "/".join(map(str, (seed, *names)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1


def numpy_stream(seed: int, *names: object) -> np.random.Generator:
    """An independent NumPy generator for `names` under `seed`."""
    return np.random.Generator(np.random.SFC64(stream_seed(seed, *names)))


def torch_stream(seed: int, *names: object) -> torch.Generator:
    """An independent CPU generator of torch for `names` under `seed`."""
    return torch.Generator().manual_seed(stream_seed(seed, *names))


_INITIALISING: ContextVar[bool] = ContextVar("initialising", default=False)


@contextmanager
def initial_weights(seed: int | None = None) -> Iterator[None]:
    """Draw the initial weights of modules that are built inside from the stream "weights" of a seed.

    torch initialises modules from its global generator, whose state is restored when the block ends.

    Args:
        seed: None continues the stream of the surrounding block, or starts at seed 0 if there is none.
    """
    if seed is None and _INITIALISING.get():
        yield
        return
    outer = _INITIALISING.set(True)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(stream_seed(seed or 0, "weights"))
            yield
    finally:
        _INITIALISING.reset(outer)


class SeededModule(nn.Module):
    """Base of modules whose initial weights neither depend on torch's global generator nor advance it."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__init__" in cls.__dict__:
            cls.__init__ = _seeded(cls.__init__)


def _seeded(init: Callable[..., None]) -> Callable[..., None]:
    @wraps(init)
    def wrapped(*args: Any, **kwargs: Any) -> None:
        with initial_weights():
            init(*args, **kwargs)

    return wrapped


def indexed_bits(seed: int, stream: str, index: np.ndarray, slots: int) -> np.ndarray:
    """Random 64-bit words that depend only on (seed, stream, index, slot): SplitMix64 on a counter.

    Args:
        seed: The data set's seed.
        stream: Name of the quantity drawn, so that two quantities never share bits.
        index: Example numbers, with shape (n,).
        slots: Words per example.

    Returns:
        Words of type uint64, with shape (n, slots), slot after slot in memory; row i is the same whatever
        the other indices are.

    References:
        Fast Splittable Pseudorandom Number Generators (Steele, Lea and Flood, 2014), Fig. 14.
    """
    key = np.uint64(stream_seed(seed, stream))
    with np.errstate(over="ignore"):
        state = _mix(key + index.astype(np.uint64) * _GOLDEN)
        counter = (np.arange(slots, dtype=np.uint64) + np.uint64(1)) * _GOLDEN
        return _mix(state + counter[:, None]).T


def indexed_integers(
    seed: int, stream: str, index: np.ndarray, slots: int, below: int | np.ndarray
) -> np.ndarray:
    """Integers uniform on [0, below) per (index, slot), as int64; bias under `below` / 2**32."""
    words = indexed_bits(seed, stream, index, slots)
    words >>= np.uint64(32)
    words *= np.asarray(below, np.uint64)
    words >>= np.uint64(32)
    return words.view(np.int64)


def indexed_draws(seed: int, stream: str, index: np.ndarray, draws: int, pool: np.ndarray) -> np.ndarray:
    """Ordered draws from `pool` without replacement, per index: a partial Fisher-Yates shuffle of each row.

    Args:
        seed: The data set's seed.
        stream: Name of the quantity drawn.
        index: Example numbers, with shape (n,); a few hundred at a time keep the shuffled rows in cache.
        draws: Draws per example, at most the size of the pool.
        pool: Values to draw from, with shape (m,).

    Returns:
        Members of the pool, with shape (n, draws), no member twice in a row.

    References:
        The Art of Computer Programming, vol. 2 (Knuth, 1997), Sec. 3.4.2, Algorithm P.
    """
    steps = np.arange(draws)
    chosen = indexed_integers(seed, stream, index, draws, len(pool) - steps).T
    chosen += steps[:, None]
    chosen += np.arange(len(index)) * len(pool)
    rows = np.broadcast_to(pool, (len(index), len(pool))).copy()
    flat, drawn = rows.reshape(-1), np.empty((draws, len(index)), pool.dtype)
    for step, place in enumerate(chosen):
        drawn[step] = flat[place]
        flat[place] = rows[:, step]  # no later step visits slot `step`, so half a swap is enough
    return drawn.T


def indexed_subsets(seed: int, stream: str, index: np.ndarray, sizes: np.ndarray, places: int) -> np.ndarray:
    """A uniformly random subset of `places` places per index, by selection sampling.

    Place p is taken with probability (still needed) / (places left), which makes all subsets equally likely.

    Args:
        seed: The data set's seed.
        stream: Name of the quantity drawn.
        index: Example numbers, with shape (n,).
        sizes: Places to take per example, with shape (n,), at most `places`.
        places: Places to choose from.

    Returns:
        True at the places taken, with shape (n, places).

    References:
        The Art of Computer Programming, vol. 2 (Knuth, 1997), Sec. 3.4.2, Algorithm S.
    """
    draws = indexed_integers(seed, stream, index, places, places - np.arange(places)).T
    taken = np.empty((places, len(index)), bool)
    needed = sizes.copy()
    for place in range(places):
        np.less(draws[place], needed, out=taken[place])
        needed -= taken[place]
    return taken.T


_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def _mix(z: np.ndarray) -> np.ndarray:
    """SplitMix64's finaliser, in place: fewer arrays in flight stay in cache."""
    z ^= z >> np.uint64(30)
    z *= np.uint64(0xBF58476D1CE4E5B9)
    z ^= z >> np.uint64(27)
    z *= np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return z
