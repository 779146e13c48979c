"""The atlas of a checkpoint: its cells are those of the sweep, and adaptive calls stop early."""

import math

import pytest
import torch
from polars.testing import assert_frame_equal
from scipy.stats import hypergeom
from tests.checkpoints.ablation.test_bands import llama as bands_llama
from tests.checkpoints.audit.families import llama

from spectrope.checkpoints.ablation.calls import BLOCK, CONTROLS, Controls
from spectrope.checkpoints.ablation.subject import CheckpointSubject
from spectrope.checkpoints.ablation.sweep import checkpoint_scores
from spectrope.checkpoints.atlas import atlas_checkpoint, heads_described, waves_in_words
from spectrope.checkpoints.language import task_sequences
from spectrope.checkpoints.sequences import predicting
from spectrope.core import ConfigError, UnsupportedError
from spectrope.lab import AtlasSettings, HeadAblation


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return llama().eval()


def test_cells_are_the_changes_that_the_sweep_measures(model):
    atlas = atlas_checkpoint(model, "induction", examples=6, length=16, settings=AtlasSettings(bands=2))
    data, subject = task_sequences(model, "induction", 6, 16), CheckpointSubject.of(model)
    fills = {"zero": None, "content-only": None, "remove-band@1of2": 1, "freeze-band@0of2": 0}
    for fill, band in fills.items():
        scores = checkpoint_scores(subject, data, [(), (HeadAblation(1, 2, fill),)])
        change = (scores[1] - scores[0]).mean(0)
        row = atlas.cells.filter(layer=1, head=2, intervention=fill.split("@")[0])
        (found,) = row.filter(band=band).rows(named=True) if band is not None else row.rows(named=True)
        assert found["loss_increase"] == pytest.approx(float(change[0]), abs=1e-6)
        assert found["drop"] == pytest.approx(-100 * float(change[1]), abs=1e-4)


def test_adaptive_calls_equal_exact_ones_on_fewer_sequences(model):
    given = {"length": 8, "examples": 200, "layers": slice(1, 2), "settings": AtlasSettings(bands=1)}
    exact = atlas_checkpoint(model, "induction", **given)
    adaptive = atlas_checkpoint(model, "induction", method="adaptive", **given)
    assert adaptive.cells["call"].to_list() == exact.cells["call"].to_list()
    assert adaptive.passes < exact.passes


def test_a_screened_atlas_measures_likely_cells_and_a_sample_of_the_others(model):
    given = {"length": 8, "examples": 6, "settings": AtlasSettings(bands=3, threshold=20.0)}
    exact = atlas_checkpoint(model, "induction", **given)
    screened = atlas_checkpoint(model, "induction", method="screened", **given)
    measured = screened.cells["n"] > 0
    block = math.ceil(BLOCK * len(exact.cells))
    assert exact.cells["drop"].max() < 20  # So that one block and the controls suffice.
    assert measured.sum() == block + CONTROLS
    assert screened.calls.controls == Controls(CONTROLS, len(measured) - block - CONTROLS, 1)
    assert_frame_equal(screened.cells.filter(measured), exact.cells.filter(measured), abs_tol=1e-5)
    assert set(screened.cells.filter(~measured)["call"]) == {"not measured"}
    assert screened.cells.filter(~measured)["drop"].null_count() == (~measured).sum()


@pytest.mark.parametrize(("n", "left", "draws"), [(59, 2540, 1), (59, 197, 1), (59, 197, 3), (59, 5, 1)])
def test_controls_bound_how_many_cells_left_out_cost(n, left, draws):
    """One more cell with a cost would have been missed with at most 5 % in all draws together."""
    most = Controls(n, left, draws).most()
    missed = [hypergeom.pmf(0, n + left, most + more, n) for more in (0, 1)]
    assert most == left or missed[1] <= 0.05 / 2**draws
    assert missed[0] > 0.05 / 2**draws


def test_a_screened_atlas_goes_on_where_cells_cost():
    """The model continues its own tokens, so that it is right until a head is changed."""
    model, draw = bands_llama(), torch.Generator().manual_seed(1)
    ids = torch.randint(5, 60, (6, 2), generator=draw)
    for _ in range(10):
        ids = torch.cat([ids, model(ids).logits[:, -1:].argmax(-1).detach()], 1)
    settings = AtlasSettings(bands=2)
    exact = atlas_checkpoint(model, ids, settings=settings)
    costly = exact.cells["drop"] > 5
    assert costly.sum() > math.ceil(BLOCK * len(exact.cells))
    screened = atlas_checkpoint(model, ids, settings=settings, method="screened")
    assert (screened.cells["drop"].fill_null(0) > 5).to_list() == costly.to_list()
    assert screened.passes < exact.passes


def test_patterns_are_described_for_the_heads_of_the_chosen_layers(model):
    atlas = atlas_checkpoint(model, "induction", examples=4, length=16, layers=slice(1, 2))
    assert set(atlas.heads["layer"]) == {1}
    assert atlas.heads["kernel"].list.len().to_list() == [16] * 4
    assert atlas.heads["sink"].is_between(0, 1).all()


def test_bands_in_words():
    assert waves_in_words([1.0, 0.1], 2) == ("6.3 positions per turn", "63 positions per turn")
    assert waves_in_words([2.0, 1.0, 0.1], 2) == ("3.1 positions per turn", "6.3 to 63 positions per turn")


def test_what_is_refused(model):
    with pytest.raises(ConfigError, match="at least 2 of them"):
        atlas_checkpoint(model, "induction", examples=1)
    with pytest.raises(ConfigError, match=r"at most 8, the number of frequencies .* got 9"):
        atlas_checkpoint(model, "induction", settings=AtlasSettings(bands=9))
    vast = llama()
    vast.lm_head.weight.data.fill_(3e38)
    with pytest.raises(UnsupportedError, match="no finite loss"):
        atlas_checkpoint(vast, "induction", examples=4, length=16, settings=AtlasSettings(bands=1))


def test_heads_are_described_on_all_sequences_whatever_the_batch():
    """Sequences are batched by length, so that the first ones are the shortest, here of two tokens."""
    model = bands_llama()
    ids = torch.randint(5, 60, (4, 16), generator=torch.Generator().manual_seed(0))
    lengths = torch.tensor([16, 2, 12, 9])
    data = predicting(ids, torch.arange(16) < lengths[:, None], lengths)
    subject, places = CheckpointSubject.of(model), {0, 1}
    whole, apart = (heads_described(subject, data, tokens, places)[1] for tokens in (64, 16))
    assert len(whole) == len(apart) == 8
    for head, expected in zip(apart, whole, strict=True):
        assert (head.layer, head.head) == (expected.layer, expected.head)
        assert head.kernel == pytest.approx(expected.kernel, rel=1e-6)
        assert (head.reach, head.induction) == pytest.approx((expected.reach, expected.induction), rel=1e-6)
