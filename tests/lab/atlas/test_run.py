"""The atlas of a run: a planted band, models without positions, brute force, and the adaptive method."""

import pytest
import torch
from tests.lab.ablation.models import decoder, examples

from spectrope.core import ConfigError, UnsupportedError
from spectrope.encodings import RoPE
from spectrope.lab.ablation.gather import data_means
from spectrope.lab.ablation.heads import ablated
from spectrope.lab.ablation.methods import TrainedSubject
from spectrope.lab.atlas.attended import attended_heads
from spectrope.lab.atlas.cells import AtlasSettings, call_of, cells_of
from spectrope.lab.atlas.run import RunAtlas, atlas_tables, require_bands
from spectrope.models.decoder import Decoder, DecoderConfig
from spectrope.tasks.base import Batch

TOKENS, LENGTH = 8, 6


def planted() -> Decoder:
    """One head that attends to the previous token by its fastest pair, whatever the content.

    All queries and keys are equal up to a turn of the first pair by one position, so its logits are
    200 cos(lag - 1). The classifier reads which token the last position attends to.
    """
    config = DecoderConfig(
        vocabulary=TOKENS,
        n_labels=TOKENS,
        max_length=LENGTH,
        d_model=2 * TOKENS,
        n_layers=1,
        n_heads=1,
        head_dim=TOKENS,
        d_ff=4,
        dropout=0.0,
        encoding=RoPE.Config(),
        pooling="last",
    )
    model = Decoder(config).double().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.fill_(1.0 if name.endswith("norm.weight") else 0.0)
        unit = torch.eye(TOKENS, dtype=torch.float64)
        block = model.blocks[0]
        model.tokens.weight[:, :TOKENS] = unit
        size = (200 * TOKENS**0.5) ** 0.5
        turned = torch.tensor([1.0, -1.0], dtype=torch.float64).cos(), torch.tensor(-1.0).sin()
        block.heads.qkv.bias[0], block.heads.qkv.bias[1] = size * turned[0][0], size * turned[1]
        block.heads.qkv.bias[TOKENS] = size
        block.heads.qkv.weight[2 * TOKENS :, :TOKENS] = unit
        block.out.weight[TOKENS:] = unit
        model.classifier.weight[:, TOKENS:] = unit
    return model


def recalled(n: int = 200) -> Batch:
    """The label is the last token but one; in every fourth example it is also the most frequent token."""
    inputs = torch.tensor([[1, 2, 2, 2, 3, 4]] * n)
    inputs[::4] = torch.tensor([1, 3, 3, 3, 3, 4])
    return Batch(inputs, torch.full((n,), 3), torch.full((n,), LENGTH))


def subject(model: Decoder, data: Batch) -> TrainedSubject:
    return TrainedSubject(model, data, data, torch.float32, 0)


def drops(tables, **where):
    return tables["atlas"].filter(**where)


class TestAPlantedBand:
    def test_its_removal_costs_the_share_of_examples_that_need_the_previous_token(self):
        tables = atlas_tables(subject(planted(), recalled()), RunAtlas())
        for intervention in ("remove-band", "freeze-band"):
            (found,) = drops(tables, intervention=intervention, band=0).rows(named=True)
            assert found["drop"] == pytest.approx(75)
            assert found["call"] == "costs"
        for band in (1, 2, 3):
            (kept,) = drops(tables, intervention="remove-band", band=band).rows(named=True)
            assert (kept["drop"], kept["call"]) == (0, "does not")

    def test_it_suffices_alone_and_no_other_band_does(self):
        tables = atlas_tables(subject(planted(), recalled()), RunAtlas())
        kept = drops(tables, intervention="keep-band").sort("band")["drop"]
        assert kept.to_list() == pytest.approx([0, 75, 75, 75])

    def test_the_head_is_one_of_the_previous_token(self):
        (head,) = atlas_tables(subject(planted(), recalled()), RunAtlas())["atlas-heads"].rows(named=True)
        assert head["previous"] == pytest.approx(1, abs=1e-6)
        assert head["reach"] == pytest.approx(1, abs=1e-6)
        assert head["kernel"][1] == pytest.approx(1, abs=1e-6)

    def test_adaptive_calls_are_the_exact_ones_on_fewer_examples(self):
        model, data = planted(), recalled(2000)
        exact = atlas_tables(subject(model, data), RunAtlas())["atlas"]
        adaptive = atlas_tables(subject(model, data), RunAtlas(adaptive=True))["atlas-adaptive"]
        assert adaptive["call"].to_list() == exact["call"].to_list()
        assert adaptive["n"].sum() < exact["n"].sum() / 2


class TestWithoutPosition:
    def test_a_model_without_an_encoding_loses_nothing_to_any_band(self):
        cells = atlas_tables(subject(decoder("nope"), examples(40)), RunAtlas())["atlas"]
        banded = cells.drop_nulls("band")
        assert set(banded["drop"]) == {0.0}
        assert "costs" not in set(banded["call"])

    def test_noise_of_an_untrained_model_is_called_in_at_most_one_cell_of_twenty(self):
        """Labels are random, so that no band helps and only chance moves the accuracy."""
        how = RunAtlas(settings=AtlasSettings(bands=3))
        cells = atlas_tables(subject(decoder(), examples(150)), how)["atlas-3-bands"].drop_nulls("band")
        outside = cells.filter((cells["low"] > 0) | (cells["high"] < 0))
        assert len(cells) == 3 * 4 * 4 * 3
        assert len(outside) <= 0.05 * len(cells)


def test_every_cell_equals_the_model_run_with_that_one_change():
    model, data = decoder(), examples(20)
    cells = cells_of([(layer, head) for layer in range(3) for head in range(4)], 2)
    table = atlas_tables(subject(model, data), RunAtlas(settings=AtlasSettings(bands=2)))["atlas-2-bands"]
    means = data_means(model, data, lags=True)
    with torch.no_grad():
        intact = (model(data).argmax(-1) == data.labels).double().mean()
    for cell, found in zip(cells, table.rows(named=True), strict=True):
        with ablated(model, *cell.variant, means=means), torch.no_grad():
            changed = (model(data).argmax(-1) == data.labels).double().mean()
        assert found["drop"] == pytest.approx(100 * float(intact - changed), abs=1e-6)


def test_attention_to_repeated_tokens_is_told_from_attention_to_the_first():
    ids = torch.tensor([[5, 6, 7, 5, 6]])
    pattern = torch.zeros(1, 2, 5, 5)
    pattern[0, 0, :, 0] = 1.0  # A sink.
    pattern[0, 1, 3, 1] = pattern[0, 1, 4, 2] = pattern[0, 1, 2, 0] = 1.0  # What followed last time.
    sink, induction = attended_heads(0, pattern, ids, torch.ones(1, 5, dtype=torch.bool))
    assert (sink.sink, sink.induction) == (1.0, 0.0)
    assert induction.induction == 1.0
    assert induction.examples == "6 at 4 to 7 at 2: 1.00; 5 at 3 to 6 at 1: 1.00"


@pytest.mark.parametrize(
    ("low", "high", "call"),
    [(6.0, 9.0, "costs"), (-1.0, 5.0, "does not"), (4.0, 6.0, "undecided"), (5.0, 9.0, "undecided")],
)
def test_calls(low, high, call):
    assert call_of(low, high, 5.0) == call


@pytest.mark.parametrize(("encoding", "most"), [("rope", 3), ("alibi", 11), ("nope", 11)])
def test_more_bands_than_frequencies_are_refused_before_anything_is_measured(encoding, most):
    how = RunAtlas(settings=AtlasSettings(bands=most + 1))
    with pytest.raises(ConfigError, match=f"at most {most}, .* got {most + 1}"):
        atlas_tables(subject(decoder(encoding), examples(4)), how)


def test_what_an_atlas_refuses():
    with pytest.raises(UnsupportedError, match="adds positions to the input"):
        require_bands(decoder("sinusoidal").encoding_of(0))
    with pytest.raises(ConfigError, match="at least 1"):
        AtlasSettings(bands=0)
    with pytest.raises(ConfigError, match="above 0 and below 100"):
        AtlasSettings(threshold=0.0)
    with pytest.raises(ConfigError, match="at least 4"):
        RunAtlas(examples=3)
