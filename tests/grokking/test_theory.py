"""Least norms, local minima and coverage against what is known of them on paper."""

import math

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from spectrope.cli import main
from spectrope.console.terminal import console
from spectrope.core.errors import ConfigError
from spectrope.grokking import arrangement
from spectrope.grokking.arrangement import least_norm, regular_polygon, stationarity
from spectrope.grokking.coverage import coverage_of, implied
from spectrope.grokking.least_norm import NormDescent, hinge, squared_norm
from spectrope.grokking.measures.base import on_sphere
from spectrope.grokking.measures.evenness import unevenness
from spectrope.grokking.models.mlp import ModularMLP
from spectrope.grokking.tasks.distributions import Random, Square, Strip
from spectrope.grokking.tasks.modular import ModularConfig, Pairs, Split


def test_weight_decay_alone_shrinks_embeddings_and_turns_none():
    start = torch.randn(5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    embeddings = start.clone().requires_grad_()
    decay = torch.optim.AdamW([embeddings], lr=0.1, weight_decay=1.0)
    for _ in range(20):
        embeddings.grad = torch.zeros_like(embeddings)
        decay.step()
    assert_close(embeddings, start * 0.9**20)
    assert_close(on_sphere(embeddings), on_sphere(start))


class TestArrangement:
    @pytest.mark.parametrize("p", [3, 5, 7])
    def test_with_room_the_least_norm_is_the_simplex_and_uniform(self, p):
        x = least_norm(p, p - 1, 0, starts=3)
        assert np.square(x).sum() == pytest.approx((p - 1) / 2)
        assert unevenness(torch.from_numpy(x)) == pytest.approx(0, abs=1e-6)
        found = stationarity(x)
        assert found.is_strict_minimum
        assert found.least_push == pytest.approx(1 / p)

    def test_in_the_plane_the_least_norm_is_the_centred_hexagon_and_not_uniform(self):
        x = least_norm(7, 2, 0)
        assert np.sort(np.linalg.norm(x, axis=1)) == pytest.approx([0, *[1] * 6], abs=1e-6)
        assert stationarity(x).is_strict_minimum
        assert unevenness(torch.from_numpy(x)) > 0.5

    @pytest.mark.parametrize("p", [5, 6, 7, 9])
    def test_the_regular_polygon_is_uniform_and_stationary_but_a_saddle(self, p):
        x = regular_polygon(p)
        assert unevenness(torch.from_numpy(x)) == pytest.approx(0, abs=1e-12)
        found = stationarity(x)
        assert found.residual < 1e-12
        assert found.least_push == pytest.approx(1 / (2 - 2 * np.cos(2 * np.pi / p)))
        assert found.least_curvature < -0.1
        assert not found.is_strict_minimum

    def test_a_square_can_be_folded_at_no_cost(self):
        found = stationarity(regular_polygon(4))
        assert found.least_curvature == pytest.approx(0, abs=1e-12)
        assert not found.is_strict_minimum

    def test_a_polygon_is_uniform_and_a_saddle_where_there_is_room_for_the_simplex(self):
        x = np.pad(regular_polygon(7), ((0, 0), (0, 4)))
        found = stationarity(x)
        assert unevenness(torch.from_numpy(x)) == pytest.approx(0, abs=1e-12)
        assert found.residual == pytest.approx(0, abs=1e-12)
        assert found.least_curvature < -1
        assert not found.is_strict_minimum

    def test_distant_tokens_are_pulled_together(self):
        found = stationarity(2 * regular_polygon(5))
        assert found.residual == pytest.approx(1)
        assert np.isnan(found.least_push)
        assert found.least_curvature == pytest.approx(1)

    def test_what_cannot_be_gets_one_line(self, monkeypatch):
        with pytest.raises(ConfigError, match=r"distances between embeddings must be at least 1; got 0\.5"):
            stationarity(0.5 * regular_polygon(5))
        with pytest.raises(ConfigError, match="at least 2 tokens, 1 dimension and 1 start; got 1, 2, 3"):
            least_norm(1, 2, 0, starts=3)
        monkeypatch.setattr(arrangement, "_descent", lambda *_: None)
        with pytest.raises(ConfigError, match="none of 1 descents from random embeddings converged"):
            least_norm(3, 2, 0, starts=1)


def split_of(trained: list[tuple[int, int]], p: int = 5) -> Split:
    a, b = (side.ravel() for side in torch.meshgrid(torch.arange(p), torch.arange(p), indexing="ij"))
    trains = torch.tensor([pair in trained for pair in zip(a.tolist(), b.tolist(), strict=True)])
    return Split(Pairs(a, b, (a + b) % p), trains, torch.zeros_like(trains))


def asked(split: Split, follows: np.ndarray) -> set[tuple[int, int]]:
    pairs = split.pairs[~split.trains][torch.from_numpy(follows)]
    return set(zip(pairs.a.tolist(), pairs.b.tolist(), strict=True))


class TestCoverage:
    def test_a_result_follows_from_a_parallelogram(self):
        # Results 1, 2 and 3 make u and v climb by equal steps from 0 to 2, and v on to 3; (2, 2) gives w_4.
        trained = [(0, 1), (1, 0), (0, 2), (1, 1), (2, 0), (1, 2), (2, 1), (0, 3), (2, 2)]
        split = split_of(trained)
        assert asked(split, implied(split, 5, offset=5)) == {(1, 3)}
        fewer = split_of([pair for pair in trained if pair != (1, 1)])
        assert asked(fewer, implied(fewer, 5, offset=5)) == set()

    def test_one_vocabulary_implies_the_mirrored_pairs(self):
        split = split_of([(0, 1), (2, 3)])
        assert asked(split, implied(split, 5)) == {(1, 0), (3, 2)}
        assert asked(split, implied(split, 5, offset=5)) == set()

    @pytest.mark.parametrize("distribution", [Random(), Square(k=7)])
    def test_random_pairs_and_a_square_imply_everything(self, distribution):
        split = ModularConfig(p=11, fraction=0.6, distribution=distribution).build().split(0)
        for offset in (0, 11):
            found = coverage_of(split, 11, offset)
            assert (found.implied, found.attainable) == (1, 1)

    def test_of_a_strip_nothing_follows_unless_the_operands_share_their_tokens(self):
        split = ModularConfig(p=11, fraction=0.4, distribution=Strip(k=6)).build().split(0)
        assert coverage_of(split, 11).attainable == 1
        apart = coverage_of(split, 11, offset=11)
        assert (apart.implied, apart.attainable) == (0, 1 / 11)
        assert apart.trained == pytest.approx(4 / 11)  # All that is left trains: four pairs of each result.

    def test_where_vocabularies_overlap_a_token_stands_for_two_residues(self):
        # Operand b is token b + 2, so (2, 0) and (0, 2) read the tokens 2, 2 and 0, 4.
        split = split_of([(3, 0), (0, 2)])
        assert asked(split, implied(split, 5, offset=2)) == {(2, 1)}  # tokens 2 and 3, as (3, 0) has
        strip = ModularConfig(p=11, fraction=0.4, distribution=Strip(k=6)).build().split(0)
        found = [coverage_of(strip, 11, offset).implied for offset in (0, 4, 7, 11)]
        assert found == pytest.approx([1, 3 / 7, 0, 0])  # Tokens 4 to 6 train as second operands.

    def test_a_pair_of_one_token_with_itself_implies_twice_its_phase_and_no_more(self):
        split = ModularConfig(p=5, fraction=0.4).build().split(22)
        assert implied(split, 5).sum() == 7  # Of 15, all of which follow over the rationals and modulo 5.

    @pytest.mark.parametrize(
        ("operation", "offset"), [("mul", 0), ("mul", 7), ("div", 7), ("quadratic", 0), ("sub", 0)]
    )
    def test_operations_that_are_no_sums_of_phases_are_refused(self, operation, offset):
        split = ModularConfig(p=7, operation=operation, fraction=0.3).build().split(0)
        with pytest.raises(ConfigError, match="different results have the same phase in every solution"):
            coverage_of(split, 7, offset)

    @pytest.mark.parametrize("operation", ["sub", "2*a + 3*b", "a**2 + b**2"])
    def test_sums_of_phases_may_have_vocabularies_of_their_own(self, operation):
        split = ModularConfig(p=11, operation=operation, fraction=0.7).build().split(0)
        assert coverage_of(split, 11, offset=11).implied == 1

    def test_a_composite_modulus_is_refused(self):
        split = ModularConfig(p=6, fraction=0.5, allow_composite=True).build().split(0)
        with pytest.raises(ConfigError, match="coverage needs a prime modulus; got 6"):
            coverage_of(split, 6)


class TestNormDescent:
    def test_the_least_norm_fits_and_is_more_uniform_than_the_first_fit(self):
        task = ModularConfig(p=7, fraction=0.8)
        model = ModularMLP.Config(d_model=8, hidden=32).build(task, 0)
        path = NormDescent(fit=200, stages=2, steps=200)(model, task.build().split(0), task.build().cycle())
        assert path["decay"].to_list() == pytest.approx([0, 1e-2, 7e-3])
        assert path["train_accuracy"].to_list() == [1.0] * 3
        assert path["norm"].is_sorted(descending=True)
        assert path["unevenness"][-1] < path["unevenness"][0]
        assert path["norm"][-1] == pytest.approx(squared_norm(model).sqrt().item())

    def test_the_hinge_counts_each_missing_margin(self):
        logits = torch.tensor([[2.0, 1.5, 0.0], [0.0, 3.0, 0.0]])
        assert hinge(logits, torch.tensor([0, 1])).item() == pytest.approx(0.5 * 0.5**2)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"steps": 0}, "NormDescent.steps must be at least 1; got 0"),
            ({"decay": 0.0}, "decay must be positive"),
            ({"decay": math.inf}, "decay must be positive and finite; got inf"),
            ({"rate": math.inf}, "rate must be positive and finite; got inf"),
            ({"ratio": 1.0}, "ratio must be between 0 and 1; got 1.0"),
            ({"rate": -1.0}, "rate must be positive"),
        ],
    )
    def test_impossible_settings_get_one_line(self, change, message):
        with pytest.raises(ConfigError, match=message):
            NormDescent(**change)


def test_the_command_prints_all_three_tables(monkeypatch, capsys):
    monkeypatch.setattr(console, "width", 200)
    monkeypatch.setattr(
        "spectrope.grokking.commands.grok_theory.NormDescent",
        lambda decay: NormDescent(fit=5, stages=1, steps=5),
    )
    assert main(["grok-theory", "--p", "7", "--tokens", "5"]) == 0
    out = capsys.readouterr().out
    assert "regular polygon, width 2" in out
    assert "strip 5" in out
    assert "(no certified minimum)" in out
    assert "Smallest norm at which" not in out
    assert main(["grok-theory", "--tokens", "2"]) == 2
    assert "tokens must be between 3 and 12; got 2" in capsys.readouterr().err
    assert main(["grok-theory", "--p", "22"]) == 2
    assert "GrokTheory.p must be a prime between 5 and 101; got 22." in capsys.readouterr().err


@pytest.mark.parametrize("embeddings", [np.zeros((1, 2)), np.full((3, 2), np.nan)])
def test_conditions_need_two_finite_tokens(embeddings):
    with pytest.raises(ConfigError, match="embeddings must be finite and at least two"):
        stationarity(embeddings)
