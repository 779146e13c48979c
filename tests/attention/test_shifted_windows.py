"""LongLoRA's shifted windows: what each head sees, alone and through the passes of an ablation."""

from dataclasses import replace

import pytest
import torch
from tests.lab.ablation.models import decoder, examples
from torch.testing import assert_close

from spectrope.attention.heads import HeadSizes
from spectrope.attention.shifted_windows import ShiftedWindows
from spectrope.core.errors import ConfigError
from spectrope.encodings.base import ENCODINGS
from spectrope.lab.ablation.passes import Piece, intact_sites
from spectrope.lab.training.scales import experiment

WINDOWS = ShiftedWindows.Config(group=4)


def built(**sizes):
    return WINDOWS.build(HeadSizes(**{"d_model": 8, "n_heads": 2, "head_dim": 4, "causal": True} | sizes))


def test_half_of_the_heads_shift_their_groups_by_half():
    plain, shifted = built().visible(None, 10)[0]
    groups = [{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9}], [{0, 1}, {2, 3, 4, 5}, {6, 7, 8, 9}]
    for seen, expected in zip((plain, shifted), groups, strict=True):
        for place, row in enumerate(seen):
            assert set(row.nonzero()[:, 0].tolist()) == next(group for group in expected if place in group)


@pytest.mark.parametrize("causal", [True, False])
def test_outputs_depend_on_the_tokens_of_the_window_alone(causal):
    model, batch = decoder("rope", attention=WINDOWS, causal=causal), examples(6)
    changed = batch.inputs.clone()
    changed[:, 5] = torch.where(batch.inputs[:, 5] > 0, batch.inputs[:, 5] % 16 + 1, 0)
    outputs, again = (
        next(intact_sites(Piece.of(model, replace(batch, inputs=inputs)))).outputs
        for inputs in (batch.inputs, changed)
    )
    assert not outputs.isnan().any()  # Nor where a window holds padding alone.
    moved = (outputs - again).abs().amax((0, 3)) > 1e-9
    for head, group in enumerate([{4, 5, 6, 7}] * 2 + [{2, 3, 4, 5}] * 2):
        seen = set(moved[head].nonzero()[:, 0].tolist())
        assert 5 in seen
        assert seen <= {place for place in group if place >= 5 or not causal}


@pytest.mark.parametrize("causal", [True, False])
def test_variants_that_share_keys_see_the_same_windows(causal):
    model = decoder("rope", attention=WINDOWS, causal=causal, memory="embeddings")
    piece = Piece.of(model, examples(5))
    x = torch.randn(3, *piece.x.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert_close(piece.outputs(1, x), piece.site(1, x).outputs)


def test_names_of_runs_tell_the_windows():
    one = experiment("distance", "shifted_windows+alibi")
    assert (one.encoding_name, one.model.attention) == ("shifted_windows+alibi", ShiftedWindows.Config())
    assert isinstance(one.model.encoding, ENCODINGS.config("alibi"))
    assert experiment("distance", "shifted_windows").encoding_name == "shifted_windows"


def test_odd_groups_are_refused():
    with pytest.raises(ConfigError, match="group must be even and at least 2; got 5"):
        ShiftedWindows.Config(group=5)
