"""Progress measures against values worked out by hand, and on solutions whose values are known."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.testing import assert_close

from spectrope.grokking.measures.base import PROGRESS_MEASURES, Snapshot, columns, on_sphere
from spectrope.grokking.measures.restricted import key_waves
from spectrope.grokking.models.mlp import ModularMLP
from spectrope.grokking.tasks.modular import ModularConfig

P, FREQUENCIES = 23, (2, 3, 5, 7, 11)


def turns(p: int, frequencies: tuple[int, ...]) -> Tensor:
    """Residues on circles: (p, 2 * frequencies)."""
    angle = 2 * math.pi * torch.arange(p, dtype=torch.float64)[:, None] * torch.tensor(frequencies) / p
    return torch.cat([angle.cos(), angle.sin()], 1)


def snapshot(of_a: Tensor, of_b: Tensor | None = None, operation: str = "add", **changes: Tensor) -> Snapshot:
    task = ModularConfig(p=len(of_a), operation=operation, fraction=0.6).build()
    split = task.split(0)
    n = len(split.pairs)
    made = Snapshot(
        split=split,
        cycle=task.cycle(),
        of_a=of_a.double(),
        of_b=(of_a if of_b is None else of_b).double(),
        representations=torch.randn(n, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1)),
        logits=torch.randn(n, len(of_a), dtype=torch.float64, generator=torch.Generator().manual_seed(2)),
        weights={"w": torch.tensor([3.0, 4.0], dtype=torch.float64)},
    )
    return replace(made, **changes)


def values(of: Snapshot) -> dict[str, float | None]:
    return {
        column: value for name in PROGRESS_MEASURES for column, value in PROGRESS_MEASURES[name]()(of).items()
    }


def noise(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def test_the_main_embedding_difference_is_the_mean_over_neighbours_and_operands():
    line = torch.tensor([[0.0, 1.0], [3.0, 5.0], [3.0, 5.0], [3.0, 6.0], [0.0, 6.0]])  # steps 5, 0, 1, 3
    steep = torch.tensor([[1.0], [2.0], [4.0], [8.0], [16.0]])  # steps 1, 2, 4, 8
    steep = torch.cat([steep, 0 * steep], 1)
    assert values(snapshot(line))["med"] == pytest.approx(9 / 4)
    assert values(snapshot(line, steep))["med"] == pytest.approx((9 / 4 + 15 / 4) / 2)
    assert values(snapshot(steep))["med_unit"] == pytest.approx(0)


def test_a_circle_has_the_difference_of_its_chords():
    found = values(snapshot(3 * turns(P, (1,))))
    chord = 2 * math.sin(math.pi / P)
    assert found["med"] == pytest.approx(3 * chord)
    assert found["med_unit"] == pytest.approx(chord)


def test_fixed_embeddings_are_measured_by_what_the_first_hidden_layer_is_given():
    model = ModularMLP.Config(hidden=10, embedding="one_hot").build(ModularConfig(p=7), 0).double()
    of_a, of_b = model.operands()
    weight = dict(model.named_parameters())["first.weight"]
    by_hand = [weight[:, half : half + 7].diff(dim=1).norm(dim=0).mean() for half in (0, 7)]
    assert values(snapshot(of_a.detach(), of_b.detach()))["med"] == pytest.approx(sum(by_hand).item() / 2)


def test_uniformity_is_the_potential_of_two_different_points():
    square = torch.tensor([[2.0, 0.0], [0.0, 1.0], [-3.0, 0.0], [0.0, -1.0], [5.0, 0.0]])
    distances = [2, 4, 2, 0, 2, 4, 2, 2, 4, 2]  # squared, of the unit vectors
    expected = math.log(np.mean(np.exp(-2 * np.array(distances))))
    assert values(snapshot(square))["uniformity"] == pytest.approx(expected)


def test_the_regular_simplex_has_distance_0_and_a_line_has_not():
    assert values(snapshot(7 * torch.eye(11) + 2))["simplex_distance"] == pytest.approx(0, abs=1e-12)
    line = torch.tensor([[1.0], [2.0], [3.0], [5.0], [9.0]])
    centred = np.sign([-3, -2, -1, 1, 5])
    excess = (np.outer(centred, centred) + 1 / 4)[~np.eye(5, dtype=bool)]
    assert values(snapshot(line))["simplex_distance"] == pytest.approx(np.sqrt((excess**2).mean()))


def test_alignment_is_the_mean_over_pairs_with_one_label():
    made = snapshot(noise(5, 3))
    unit, labels = F.normalize(made.representations, dim=1), made.split.pairs.labels
    apart = torch.cdist(unit, unit).square()
    same = (labels[:, None] == labels) & ~torch.eye(len(labels), dtype=torch.bool)
    assert values(made)["alignment"] == pytest.approx(apart[same].mean().item())
    aligned = replace(made, representations=torch.eye(5, dtype=torch.float64)[labels])
    assert values(aligned)["alignment"] == pytest.approx(0, abs=1e-12)


def test_representations_of_zero_lie_at_the_centre_and_apart_from_none_of_their_kind():
    made = snapshot(noise(5, 3))
    labels = made.split.pairs.labels
    nothing = replace(made, representations=torch.zeros_like(made.representations))
    assert values(nothing)["alignment"] == 0
    some = made.representations * (torch.arange(len(labels)) % 3 > 0)[:, None]
    apart = torch.cdist(F.normalize(some, dim=1), F.normalize(some, dim=1)).square()
    same = (labels[:, None] == labels) & ~torch.eye(len(labels), dtype=torch.bool)
    assert values(replace(made, representations=some))["alignment"] == pytest.approx(
        apart[same].mean().item()
    )


def test_alignment_of_labels_that_occur_once_is_undefined():
    made = snapshot(noise(5, 3))
    once = torch.arange(5)
    pairs = made.split.pairs[once]
    split = replace(made.split, pairs=replace(pairs, labels=once))
    measure = PROGRESS_MEASURES["uniformity"]()
    few = replace(made, split=split, representations=noise(5, 2), logits=noise(5, 5))
    assert measure(few)["alignment"] is None


@pytest.mark.parametrize("operation", ["add", "mul"])
def test_tokens_on_circles_and_on_a_simplex_are_uniform(operation):
    cycle = ModularConfig(p=P, operation=operation).build().cycle()
    on_circles = torch.zeros(P, 6, dtype=torch.float64)
    on_circles[cycle] = turns(len(cycle), (1, 4, 5))
    assert values(snapshot(on_circles, operation=operation))["unevenness"] == pytest.approx(0, abs=1e-12)
    assert values(snapshot(torch.eye(P), operation=operation))["unevenness"] == pytest.approx(0, abs=1e-12)
    assert values(snapshot(noise(P, 6), operation=operation))["unevenness"] > 0.3


def test_unevenness_is_the_distance_to_the_nearest_circulant():
    points = noise(5, 3) + 10.0  # What all tokens share does not matter.
    centred = points - points.mean(0)
    gram = (centred @ centred.T).numpy()
    shifts = [np.roll(np.roll(gram, s, 0), s, 1) for s in range(5)]  # averaging over the group projects
    expected = np.linalg.norm(gram - np.mean(shifts, 0)) / np.linalg.norm(gram)
    assert values(snapshot(points))["unevenness"] == pytest.approx(expected)


def test_one_wave_is_sparse_and_a_spike_is_not():
    few = values(snapshot(turns(P, (4,))))["fourier_gini"]
    assert few == pytest.approx(1 - 1 / 11)  # all power at one of 11 frequencies
    assert values(snapshot(torch.eye(P)))["fourier_gini"] == pytest.approx(0, abs=1e-12)
    assert values(snapshot(turns(P, (1, 4))))["fourier_gini"] == pytest.approx(1 - 2 / 11)


def fourier_logits(operation: str, sharpness: float) -> Snapshot:
    """The trigonometric solution: cos(w_k (a + b - c)) summed over five frequencies; it is exact."""
    made = snapshot(noise(P, 4), operation=operation)
    place = torch.full((P,), -1)
    place[made.cycle] = torch.arange(len(made.cycle))
    waves = torch.zeros(P, 2 * len(FREQUENCIES), dtype=torch.float64)
    waves[made.cycle] = turns(len(made.cycle), FREQUENCIES)
    return replace(made, logits=sharpness * waves[made.split.pairs.labels] @ waves.T)


@pytest.mark.parametrize("operation", ["add", "sub", "mul"])
def test_a_solution_by_waves_is_all_in_its_restricted_loss_and_nothing_without_them(operation):
    made = fourier_logits(operation, 4.0)
    labels = made.split.pairs.labels
    counted = torch.isin(labels, made.cycle)
    assert (made.logits.argmax(1) == labels)[counted].all()
    found = values(made)
    whole = F.cross_entropy(made.logits[counted], labels[counted]).item()
    assert whole < 0.01
    assert found["restricted_loss"] == pytest.approx(whole)
    assert found["excluded_loss"] == pytest.approx(math.log(P))


def test_restriction_agrees_with_a_two_dimensional_transform_over_the_operands():
    made = snapshot(noise(P, 4))
    grid = made.logits.reshape(P, P, P).numpy()
    transform = np.fft.fft2(grid, axes=(0, 1))
    power = [(np.abs(transform[k, k]) ** 2).sum() for k in range(1, (P + 1) // 2)]
    keys = 1 + np.argsort(power)[-5:]
    kept = np.zeros_like(transform)
    kept[0, 0] = transform[0, 0]
    for k in keys:  # cos and sin of w_k (a + b) are the entries (k, k) and (-k, -k)
        kept[k, k], kept[-k, -k] = transform[k, k], transform[-k, -k]
    restricted = torch.from_numpy(np.fft.ifft2(kept, axes=(0, 1)).real.reshape(P * P, P))
    kept[0, 0] = 0
    excluded = torch.from_numpy((grid - np.fft.ifft2(kept, axes=(0, 1)).real).reshape(P * P, P))
    labels, trains = made.split.pairs.labels, made.split.trains
    found = values(made)
    assert found["restricted_loss"] == pytest.approx(F.cross_entropy(restricted, labels).item())
    assert found["excluded_loss"] == pytest.approx(F.cross_entropy(excluded[trains], labels[trains]).item())


def test_few_residues_have_few_waves():
    signal = noise(4, 3)
    mean, waves = key_waves(signal)
    assert_close(mean + waves, signal)


def test_restriction_is_undefined_where_some_results_never_occur():
    found = values(snapshot(noise(7, 3), operation="a**2"))
    assert found["restricted_loss"] is None
    assert found["excluded_loss"] is None


def test_the_norm_is_that_of_all_weights():
    weights = {"w": torch.tensor([3.0, 4.0]), "v": torch.full((2, 2), 6.0)}
    assert values(snapshot(noise(5, 2), weights=weights))["weight_norm"] == pytest.approx(13)


def test_the_effective_rank_counts_equal_dimensions_and_ignores_the_mean():
    assert values(snapshot(turns(P, (1, 4, 5)) + 9))["effective_rank"] == pytest.approx(6)
    assert values(snapshot(torch.eye(11) - 3))["effective_rank"] == pytest.approx(10)


def test_scale_free_measures_do_not_see_the_scale():
    points = noise(11, 6)
    before, after = values(snapshot(points)), values(snapshot(7 * points))
    changed = {name for name in before if before[name] != pytest.approx(after[name])}
    assert changed == {"med"}


def test_single_norms_change_all_but_the_measures_on_the_sphere():
    points = noise(11, 6)
    one_longer = torch.cat([3 * points[:1], points[1:]])
    before, after = values(snapshot(points)), values(snapshot(one_longer))
    changed = {name for name in before if before[name] != pytest.approx(after[name])}
    assert changed == {"med", "unevenness", "simplex_distance", "fourier_gini", "effective_rank"}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_sphere_has_every_row_but_zeros_whatever_its_norm(dtype):
    norms = torch.logspace(-11.9, 9, 400, dtype=dtype)[:, None]
    usual = F.normalize(noise(400, 7).to(dtype), dim=-1) * norms
    usual = usual[usual.norm(dim=-1) > 1e-12]
    assert torch.equal(on_sphere(usual), F.normalize(usual, dim=-1))
    tiny = on_sphere(noise(5, 7).to(dtype) * 1e-16)
    assert_close(tiny.norm(dim=-1), torch.ones(5, dtype=dtype))
    assert on_sphere(torch.zeros(2, 3, dtype=dtype)).count_nonzero() == 0


def test_embeddings_of_zeros_leave_shares_undefined():
    found = values(snapshot(torch.zeros(5, 3)))
    undefined = {name for name, value in found.items() if value is None}
    assert undefined == {"unevenness", "fourier_gini", "effective_rank"}


def test_every_column_is_named_once_and_explained():
    found = values(snapshot(noise(5, 3)))
    assert found.keys() == columns().keys()
    for name in ("restricted_loss", "excluded_loss"):
        assert columns()[name].startswith("cross-entropy of ")
    assert sum(len(PROGRESS_MEASURES[name].columns) for name in PROGRESS_MEASURES) == len(columns())


@pytest.mark.parametrize(("operation", "p"), [("mul", 23), ("div", 23), ("add", 23), ("a*b + 1", 23)])
def test_the_cycle_is_the_group_that_the_operation_adds_up_in(operation, p):
    task = ModularConfig(p=p, operation=operation).build()
    cycle = task.cycle().tolist()
    if operation in ("mul", "div"):
        assert sorted(cycle) == list(range(1, p))
        place = {residue: i for i, residue in enumerate(cycle)}
        sign = 1 if operation == "mul" else -1
        pairs = task.pairs()
        for a, b, c in zip(pairs.a.tolist(), pairs.b.tolist(), pairs.labels.tolist(), strict=True):
            assert not (a and b) or place[c] == (place[a] + sign * place[b]) % (p - 1)
    else:
        assert cycle == list(range(p))
