"""The finite data set: its operations, its exact split, and what it refuses."""

import itertools

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from spectrope.core.config import config_hash, from_dict, to_dict
from spectrope.core.errors import ConfigError, UnknownNameError
from spectrope.core.random import numpy_stream
from spectrope.grokking.tasks.arithmetic import Expression
from spectrope.grokking.tasks.distributions import DISTRIBUTIONS, Distribution, Random, Square, Strip
from spectrope.grokking.tasks.modular import Modular, ModularConfig, is_prime

PRIMES = [p for p in range(5, 40) if is_prime(p)]
DISTRIBUTED = st.one_of(
    st.just(Random()),
    st.builds(Square, k=st.integers(0, 40)),
    st.builds(Strip, k=st.integers(0, 40)),
)


def table(operation: str, p: int = 7) -> np.ndarray:
    pairs = Modular(ModularConfig(p=p, operation=operation)).pairs()
    found = np.full((p, p), -1)
    found[pairs.a, pairs.b] = pairs.labels
    return found


def by_hand(rule, p: int = 7) -> list[list[int]]:
    return [[rule(a, b) % p for b in range(p)] for a in range(p)]


@pytest.mark.parametrize(
    ("operation", "rule"),
    [
        ("add", lambda a, b: a + b),
        ("sub", lambda a, b: a - b),
        ("quadratic", lambda a, b: a * a + a * b + b * b),
        ("mul", lambda a, b: a * b),
        ("a^3 - 2*b + 5", lambda a, b: a**3 - 2 * b + 5),
        ("-(a + 10)**2 * +b", lambda a, b: -((a + 10) ** 2) * b),
        ("a**100000000000 + b**0", lambda a, b: pow(a, 100000000000, 7) + 1),
        ("3", lambda a, b: 3),
    ],
)
def test_results_are_those_of_the_operation(operation, rule):
    assert table(operation).tolist() == by_hand(rule)


def test_division_inverts_multiplication_and_leaves_zero_divisors_out():
    quotients = table("div")
    assert (quotients[:, 0] == -1).all()
    assert all(quotients[a, b] * b % 7 == a for a in range(7) for b in range(1, 7))
    config = ModularConfig(p=6, operation="1/b", allow_composite=True)
    assert sorted(set(Modular(config).pairs().b.tolist())) == [1, 5]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("__import__('os').system('true')", "holds .*import.*; write arithmetic in a and b"),
        ("a + c", "holds 'c'"),
        ("a if b else 1", "holds"),
        ("a + True", "holds 'True'"),
        ("a**True", r"holds 'a \*\* True'"),
        ("a + 0.5", "holds '0.5'"),
        ("a // b", "holds 'a // b'"),
        ("a**b", r"holds 'a \*\* b'"),
        ("a**-1", r"holds .a \*\* \(-1\)."),
        ("~a", "holds '~a'"),
        ("a +", "does not read as arithmetic"),
        ("", "does not read as arithmetic"),
        ("(" * 120 + "a" + ")" * 79, "does not read as arithmetic"),
        ("a+" * 101 + "b", "at most 200 characters; got 203"),
    ],
)
def test_what_is_no_arithmetic_is_refused(text, message):
    with pytest.raises(ConfigError, match=message):
        Expression(text)


def is_held(distribution: Distribution, a: int, b: int) -> bool:
    """The rule in its own words."""
    match distribution:
        case Square(k=k):
            return max(a, b) <= k
        case Strip(k=k):
            return a <= k
    return False


@settings(max_examples=60)
@given(
    p=st.sampled_from(PRIMES),
    distribution=DISTRIBUTED,
    fraction=st.floats(0.3, 0.9),
    seed=st.integers(0, 2**31),
)
def test_a_split_is_disjoint_complete_reproducible_and_as_stated(p, distribution, fraction, seed):
    assume(getattr(distribution, "k", 0) < p - 1)
    config = ModularConfig(p=p, distribution=distribution, fraction=fraction)
    try:
        split = config.build().split(seed)
    except ConfigError:
        assume(False)
    train, test = (
        set(zip(side.a.tolist(), side.b.tolist(), strict=True)) for side in (split.train, split.test)
    )
    assert train.isdisjoint(test)
    assert train | test == set(itertools.product(range(p), repeat=2))
    held = {pair for pair in train | test if is_held(distribution, *pair)}
    assert train.isdisjoint(held)
    assert len(train) == min(round(fraction * p * p), p * p - len(held))
    assert split.held_out.sum() == len(held)
    assert config.build().split(seed).trains.equal(split.trains)
    assert split.test.labels.tolist() == [(a + b) % p for a, b in sorted(test)]
    assert set(split.train.labels.tolist()) == set(range(p))


@pytest.mark.parametrize("operation", ["mul", "a*b", "b * a", "div", "a/b", "b/a", "2*a*b - a*b"])
def test_whatever_multiplies_goes_round_the_powers_of_a_root(operation):
    assert ModularConfig(p=7, operation=operation).build().cycle().tolist() == [1, 3, 2, 6, 4, 5]


def test_other_operations_and_composites_go_round_the_residues():
    for config in (ModularConfig(p=7, operation="a*b + 1"), ModularConfig(p=7)):
        assert config.build().cycle().tolist() == list(range(7))
    composite = ModularConfig(p=8, operation="mul", allow_composite=True)
    assert composite.build().cycle().tolist() == list(range(8))


def test_an_operation_that_is_defined_nowhere_is_named():
    with pytest.raises(ConfigError, match=r"operation must be defined for some pair; got '1/\(a-a\)'"):
        ModularConfig(p=7, operation="1/(a-a)").build().split(0)


def test_seeds_split_differently_and_alike_on_every_machine():
    task = ModularConfig(p=11).build()
    assert not task.split(0).trains.equal(task.split(1).trains)
    assert task.split(0).trains.nonzero()[:12, 0].tolist() == [0, 1, 2, 3, 4, 5, 6, 9, 10, 11, 13, 14]


def test_the_held_out_regions_are_those_of_the_paper():
    square = ModularConfig(p=97, distribution=Square(k=67), fraction=0.3).build().split(0)
    strip = ModularConfig(p=97, distribution=Strip(k=67), fraction=0.3).build().split(0)
    assert int(square.held_out.sum()) == 68**2
    assert int(strip.held_out.sum()) == 68 * 97
    assert len(square.train) == round(0.3 * 97**2)
    assert strip.trains.equal(~strip.held_out)  # fewer are left than the fraction asks for


def test_vocabularies_are_shared_overlap_or_are_disjoint():
    sizes = [ModularConfig(p=7, offset=offset).vocabulary for offset in (0, 3, 7)]
    assert sizes == [8, 11, 15]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"p": 96}, "ModularConfig.p must be prime; got 96.*allow_composite"),
        ({"p": 1}, "p must be between 2 and 512; got 1"),
        ({"p": 4001}, "p must be between 2 and 512"),
        ({"fraction": 0.0}, "fraction must be a share of all pairs strictly between 0 and 1"),
        ({"fraction": 1.0}, "fraction must be a share"),
        ({"offset": -1}, "offset must be between 0 and 512"),
        ({"operation": "a % b"}, "holds 'a % b'"),
        ({"p": 53, "distribution": Square(k=53)}, "Square.k must be below p - 1, 52; got 53. No pair"),
        ({"p": 53, "distribution": Strip(k=52)}, "Strip.k must be below p - 1, 52; got 52"),
    ],
)
def test_settings_that_make_no_task_are_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        ModularConfig(**changes)


@pytest.mark.parametrize("kind", [Square, Strip])
def test_a_region_has_at_least_one_operand(kind):
    with pytest.raises(ConfigError, match=rf"{kind.__name__}.k must be at least 0; got -1"):
        kind(k=-1)


def test_fewer_training_pairs_than_results_are_refused():
    few = ModularConfig(p=31, fraction=0.01).build()
    told = r"fraction must be large enough.*got 0.01. There are 31 results, and 10 training pairs"
    with pytest.raises(ConfigError, match=told):
        few.split(0)
    with pytest.raises(ConfigError, match="There are 7 results, and 0 training pairs"):
        ModularConfig(p=7, fraction=0.01).build().split(0)


def test_a_result_whose_pairs_are_all_held_out_is_refused():
    hidden = ModularConfig(p=59, operation="quadratic", distribution=Square(k=5)).build()
    with pytest.raises(
        ConfigError, match=r"distribution must be lenient.*Every pair with result 0 is held out"
    ):
        hidden.split(0)


@pytest.mark.parametrize("seed", range(8))
def test_a_rare_result_is_always_trained_on(seed):
    config = ModularConfig(p=59, operation="quadratic")
    split = config.build().split(seed)
    assert (split.pairs.labels == 0).sum() == 1  # Only (0, 0): the form has no other zero modulo 59.
    assert set(split.train.labels.tolist()) == set(range(59))
    assert len(split.train) == round(0.5 * 59**2)
    order = numpy_stream(seed, "modular/split").permutation(59**2)
    drawn = set(order[: len(split.train)].tolist())
    trained = set(split.trains.nonzero().flatten().tolist())
    assert trained - drawn <= {0}
    assert (trained == drawn) == (0 in drawn)  # Where the plain draw will do, it is the split.


def test_as_many_pairs_as_results_are_enough_to_train_on_each():
    split = ModularConfig(p=31, fraction=31 / 31**2).build().split(0)
    assert sorted(split.train.labels.tolist()) == list(range(31))


def test_a_split_leaves_something_to_test_on():
    with pytest.raises(ConfigError, match="small enough to leave a pair to test on; got"):
        ModularConfig(p=5, fraction=0.99).build().split(0)


def test_configurations_round_trip_by_the_name_of_their_distribution():
    every = [ModularConfig(distribution=one) for one in (Random(), Square(k=40), Strip(k=40), Strip(k=41))]
    assert [from_dict(ModularConfig, to_dict(one)) for one in every] == every
    assert len({config_hash(one) for one in every}) == len(every)
    assert to_dict(every[1])["distribution"] == {"kind": "square", "k": 40}
    with pytest.raises(UnknownNameError, match="unknown data distribution 'squares'; did you mean square"):
        DISTRIBUTIONS["squares"]


@pytest.mark.parametrize("n", range(-1, 60))
def test_primes_are_told_from_other_numbers(n):
    assert is_prime(n) == (n > 1 and not any(n % d == 0 for d in range(2, n)))
