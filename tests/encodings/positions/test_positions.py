"""Rules that number tokens."""

import pytest
import torch
from torch.testing import assert_close

from spectrope.core.config import OneOf, config_hash, to_dict
from spectrope.core.errors import ConfigError, UnsupportedError
from spectrope.encodings.base import Context
from spectrope.encodings.positions.arange import Arange
from spectrope.encodings.positions.base import POSITIONS, Positions
from spectrope.encodings.positions.digits import digit_positions
from spectrope.encodings.positions.interpolated import Interpolated
from spectrope.encodings.positions.random_subset import RandomSubset
from spectrope.encodings.positions.shifted import Shifted
from spectrope.encodings.rope import RoPE
from spectrope.encodings.schedules.linear import Linear

CPU = torch.device("cpu")


@pytest.mark.parametrize("name", list(POSITIONS))
class TestEveryRule:
    def test_reads_back_equal_and_hashes_apart(self, name):
        rule = POSITIONS[name]()
        assert OneOf(POSITIONS).read(to_dict(rule)) == rule
        assert len({config_hash(POSITIONS[other]()) for other in POSITIONS}) == len(POSITIONS)

    @pytest.mark.parametrize("seed", [None, 7])
    def test_numbers_increase_and_repeat_under_one_seed(self, name, seed):
        rule = POSITIONS[name]()
        pos = rule(3, 200, CPU, seed)
        assert pos.shape in ((1, 200), (3, 200))
        assert (pos.diff(dim=-1) > 0).all()
        assert (pos >= 0).all()
        assert torch.equal(rule(3, 200, CPU, seed), pos)

    def test_evaluation_numbers_every_sequence_alike(self, name):
        rule = POSITIONS[name]()
        assert torch.equal(rule(5, 40, CPU), rule(1, 40, CPU))
        assert len(rule(5, 40, CPU)) == 1

    def test_no_position_depends_on_how_many_follow_unless_it_says_so(self, name):
        rule = POSITIONS[name]()
        whole = rule(1, 200, CPU).double()
        alike = all(torch.equal(rule(1, n, CPU).double(), whole[:, :n]) for n in (40, 130, 199))
        assert alike == rule.prefix_consistent

    def test_says_where_it_comes_from(self, name):
        assert ":math:" in (POSITIONS[name].__doc__ or "")


def test_tokens_are_numbered_from_zero():
    assert torch.equal(Arange()(3, 5, CPU), torch.tensor([[0, 1, 2, 3, 4]]))


def test_random_subsets_are_uniform():
    pos = RandomSubset(longest=10)(20_000, 3, CPU, seed=1)
    counts = torch.bincount(pos.flatten(), minlength=10)
    chi2 = float(((counts - 6000.0) ** 2 / 6000).sum()) * 9 / 7  # drawn without replacement: smaller variance
    assert len(counts) == 10
    assert chi2 < 27.9  # 0.999 quantile of chi-squared with 9 degrees of freedom
    assert not torch.equal(RandomSubset(longest=10)(20_000, 3, CPU, seed=2), pos)
    assert torch.equal(RandomSubset(longest=6)(2, 6, CPU, seed=3), torch.arange(6).expand(2, 6))


def test_random_subsets_of_evaluation_depend_on_seed_and_length():
    rows = [RandomSubset(seed=seed)(1, length, CPU)[0, :20] for seed, length in ((0, 20), (1, 20), (0, 21))]
    assert not torch.equal(rows[0], rows[1])
    assert not torch.equal(rows[0], rows[2])


def test_a_subset_larger_than_its_range_is_refused():
    with pytest.raises(UnsupportedError, match="RandomSubset has 10 positions and was asked for 11"):
        RandomSubset(longest=10)(1, 11, CPU)


def test_shifts_are_uniform_in_training_and_absent_in_evaluation():
    pos = Shifted(max_shift=4)(50_000, 3, CPU, seed=1)
    assert torch.equal(pos - pos[:, :1], torch.arange(3).expand(50_000, 3))
    counts = torch.bincount(pos[:, 0], minlength=5)
    assert len(counts) == 5
    assert float(((counts - 10_000.0) ** 2 / 10_000).sum()) < 18.5  # 0.999 quantile, 4 degrees of freedom
    assert torch.equal(Shifted()(2, 3, CPU), torch.arange(3)[None])


def test_interpolated_rope_is_the_linear_schedule():
    pos = Interpolated(trained_length=10)(1, 40, CPU)
    assert_close(pos, torch.arange(40)[None] / 4)
    assert torch.equal(Interpolated(trained_length=10)(1, 10, CPU), torch.arange(10)[None])
    x, whole = torch.randn(1, 1, 40, 8, dtype=torch.float64), torch.arange(40)[None]
    squeezed = RoPE.Config(head_dim=8).build().logits(Context(x, x, pos.double(), pos.double()))
    slowed = RoPE.Config(head_dim=8, schedule=Linear(factor=4.0)).build()
    assert_close(squeezed, slowed.logits(Context(x, x, whole, whole)))


def test_digits_are_numbered_within_their_number():
    digits = torch.tensor([[c.isdigit() for c in "123+4567=89"]])
    assert digit_positions(digits).tolist() == [[1, 2, 3, 0, 1, 2, 3, 4, 0, 1, 2]]
    assert digit_positions(digits, from_end=True).tolist() == [[3, 2, 1, 0, 4, 3, 2, 1, 0, 2, 1]]
    assert digit_positions(digits, first=11).tolist() == [[11, 12, 13, 0, 11, 12, 13, 14, 0, 11, 12]]


@pytest.mark.parametrize(
    ("rule", "field", "value"),
    [(RandomSubset, "longest", 0), (Shifted, "max_shift", -1), (Interpolated, "trained_length", 0)],
)
def test_impossible_settings_are_refused(rule, field, value):
    with pytest.raises(ConfigError, match=f"{rule.__name__}.{field} must be at least"):
        rule(**{field: value})


def test_a_rule_must_say_how_it_numbers():
    with pytest.raises(NotImplementedError):
        Positions()(1, 1, CPU)
