"""Coverage: which results are determined by the training pairs, before training."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Int

from spectrope.core import ConfigError
from spectrope.grokking.tasks.modular import Split, is_prime

LARGE_PRIME = 32_749  # Stands for the rationals; its square fits 32 bits.

EquationRows = Int[np.ndarray, "_ m"]


@dataclass(frozen=True)
class Coverage:
    """How far a training set covers the label-equivalence classes of the test pairs, the pairs of one result.

    Args:
        trained: Mean over test pairs of the share of their class that trains.
        implied: Share of the test pairs whose result follows from the training pairs.
        attainable: Accuracy if all implied results are answered correctly and all others by chance.
    """

    trained: float
    implied: float
    attainable: float


def coverage_of(split: Split, p: int, offset: int = 0) -> Coverage:
    r"""Coverage of a split's classes by its training pairs.

    Let a network write tokens and results as phases, :math:`u_a + u_{b+d} = w_{a\circ b}` on the circle, as
    trigonometric solutions do that treat both operands alike. Each training pair is one such equation with
    integer coefficients. A test pair's own equation holds in every solution if and only if it is an integer
    combination of these, since the circle group is an injective cogenerator. That is tested over the
    rationals, modulo p, and modulo 2, because a pair of a token with itself gives :math:`2u_a`: what follows
    does so over all three; the converse fails only if the equations have other torsion, such as p squared.

    Args:
        split: Pairs, and which of them train.
        p: Modulus, a prime.
        offset: The d of the task: operand b is token b + d, so that 0 shares one vocabulary and p parts two.

    Raises:
        ConfigError: If p is composite, or the operation is no sum of phases: different results have the same
            phase, a multiple of 1/p, in every solution for all pairs, as for `mul` and `div`, whose operands
            include 0.
    """
    follows = implied(split, p, offset)
    labels, trains = split.pairs.labels, split.trains
    sizes = torch.bincount(labels, minlength=p)
    shares = torch.bincount(labels[trains], minlength=p) / sizes.clamp(min=1)
    share = float(follows.mean())
    return Coverage(shares[labels[~trains]].mean().item(), share, share + (1 - share) / p)


def implied(split: Split, p: int, offset: int = 0) -> Bool[np.ndarray, " t"]:
    """Whether the result of each test pair follows from the training pairs; see `coverage_of`.

    Raises:
        ConfigError: If p is composite, or the operation is no sum of phases.
    """
    if not is_prime(p):
        raise ConfigError(f"coverage needs a prime modulus; got {p}.")
    rows = _equations(split, p, offset)
    _require_phases(rows, split.pairs.labels.unique().numpy() + offset + p, p)
    trains = split.trains.numpy()
    primes = dict.fromkeys((p, 2, LARGE_PRIME))
    return np.logical_and.reduce([_spanned(rows[trains], rows[~trains], q) for q in primes])


def _require_phases(rows: EquationRows, columns: Int[np.ndarray, " r"], p: int) -> None:
    """Raise an error if two results, told by their columns, are the same in every solution modulo p.

    Their difference is then a combination of the rows, so that both have the same remainder.
    """
    results = np.eye(rows.shape[1], dtype=np.int32)[columns]
    if len(np.unique(_remainders(results, _basis(rows, p), p), axis=0)) < len(results):
        raise ConfigError(
            "coverage needs an operation that is a sum of phases; here, different results have the same "
            "phase in every solution. Use add, or sub with an offset of p."
        )


def _equations(split: Split, p: int, offset: int) -> EquationRows:
    """A row per pair: 1 at the tokens of both operands, -1 at the result."""
    pairs = split.pairs
    a, b, c = (x.numpy() for x in (pairs.a, pairs.b, pairs.labels))
    rows, place = np.zeros((len(a), offset + 2 * p), np.int32), np.arange(len(a))
    for column, sign in ((a, 1), (b + offset, 1), (c + offset + p, -1)):
        np.add.at(rows, (place, column), sign)
    return rows


def _spanned(known: EquationRows, asked: EquationRows, q: int) -> Bool[np.ndarray, " t"]:
    """Whether rows are combinations of others modulo a prime."""
    return np.logical_not(_remainders(asked, _basis(known, q), q).any(axis=1))


def _basis(known: EquationRows, q: int) -> EquationRows:
    """A basis modulo a prime in reduced row echelon form."""
    basis, known = known[:0], np.random.default_rng(0).permutation(known)  # So that blocks have full rank.
    while len(known):
        block, known = np.split(known, [known.shape[1]])
        basis = _reduced(np.concatenate([basis, block]), q)
        known = _remainders(known, basis, q)
        known = known[known.any(axis=1)]
    return basis


def _reduced(rows: EquationRows, q: int) -> EquationRows:
    """The reduced row echelon form modulo a prime, without rows of zeros: Gauss-Jordan elimination."""
    rows, done = rows % q, 0
    for column in range(rows.shape[1]):
        places = np.flatnonzero(rows[done:, column])
        if not len(places):
            continue
        rows[[done, done + places[0]]] = rows[[done + places[0], done]]
        pivot = rows[done] * pow(int(rows[done, column]), -1, q) % q
        hit = np.flatnonzero(rows[:, column])
        rows[hit] = (rows[hit] - rows[hit, column, None] * pivot) % q
        rows[done] = pivot
        done += 1
    return rows[:done]


def _remainders(rows: EquationRows, basis: EquationRows, q: int) -> EquationRows:
    """What is left of rows modulo a prime once a basis in reduced row echelon form has cleared its pivots."""
    pivots = basis.astype(bool).argmax(axis=1)
    cleared = (rows[:, pivots] % q).astype(float) @ basis  # Sums of a few hundred squares of q are exact.
    return (rows - cleared.astype(np.int64)) % q
