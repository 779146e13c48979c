"""Fills of frequency bands against logits written out pair by pair and wave by wave."""

import math

import pytest
import torch
from tests.lab.ablation.models import LATENT, decoder, examples

from spectrope.core import ConfigError, UnsupportedError
from spectrope.encodings import ALiBi, Context, PartialDims, PerHead, RoPE
from spectrope.encodings.bands import Band, Banded, RotatingPairs, kernel_band, most_bands, rotating_pairs
from spectrope.encodings.laws import check_laws
from spectrope.encodings.per_head import Group
from spectrope.lab.ablation.banded import read_band
from spectrope.lab.ablation.engine import ablated_logits
from spectrope.lab.ablation.fills.base import fill_of
from spectrope.lab.ablation.gather import data_means
from spectrope.lab.ablation.heads import ablated
from spectrope.lab.ablation.interventions import HeadAblation
from spectrope.lab.ablation.passes import Piece, intact_sites

KINDS = ("remove-band", "freeze-band", "keep-band", "remove-band-off-sink")


def sites(model, data):
    means = data_means(model, data, lags=True)
    return list(intact_sites(Piece.of(model, data, means=means)))


def brute_force(site, logit):
    """Outputs of all heads from the logits of one query and one key at a time."""
    b, h, t = site.outputs.shape[:3]
    outputs = torch.zeros_like(site.outputs)
    for example in range(b):
        for head in range(h):
            for i in range(t):
                logits = torch.stack([logit(example, head, i, j) for j in range(i + 1)])
                outputs[example, head, i] = logits.softmax(0) @ site.v[example, head, : i + 1]
    return outputs


def rotary_logit(site, lag_of):
    """A logit as a sum over complex pairs, each at a lag of its own; frequencies are those of the paper."""
    d = site.ctx.q.shape[-1]

    def logit(example, head, i, j):
        q, k = site.ctx.q[example, head, i], site.ctx.k[example, head, j]
        total = torch.zeros((), dtype=q.dtype)
        for pair in range(d // 2):
            angle = 10000 ** (-2 * pair / d) * lag_of(pair, head, i, j)
            (a, b), (c, e) = q[2 * pair : 2 * pair + 2], k[2 * pair : 2 * pair + 2]
            total = total + (a * c + b * e) * math.cos(angle) + (a * e - b * c) * math.sin(angle)
        return total / math.sqrt(d)

    return logit


@pytest.mark.sampled
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("index", [0, 1, 2])
def test_bands_of_pairs_equal_logits_summed_pair_by_pair(kind, index):
    """With 3 pairs in 3 bands, a band is one pair."""
    data = examples(3, width=7)
    site = sites(decoder(), data)[1]
    means = site.lags

    def lag_of(pair, head, i, j):
        lag = i - j
        if kind == "keep-band":
            return lag if pair == index else 0
        if pair != index or (kind == "remove-band-off-sink" and j == 0):
            return lag
        return float(means[head]) if kind == "freeze-band" else 0

    expected = brute_force(site, rotary_logit(site, lag_of))
    torch.testing.assert_close(site.filled(f"{kind}@{index}of3"), expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("encoding", ["alibi", "t5", "relative"])
@pytest.mark.parametrize("kind", KINDS)
def test_bands_of_a_bias_equal_cosines_written_out(encoding, kind):
    model, data = decoder(encoding, seed=1), examples(2, width=7)
    site, band = sites(model, data)[0], Band(index=1, of=2)
    n = int(site.ctx.lag.abs().max()) + 1
    places = torch.arange(1 - n, n, dtype=torch.float64)
    kernel = site.encoding.lag_bias(places.abs()).detach().double()

    def wave(lag, head):
        """Sum of the band's Fourier components at a lag, by the definition of the transform."""
        total = 0.0
        for k in band.waves(n):
            phase = 2 * math.pi * k / (2 * n - 1)
            total += (
                2
                / (2 * n - 1)
                * sum(
                    float(kernel[place, head]) * math.cos(phase * (lag - int(places[place])))
                    for place in range(2 * n - 1)
                )
            )
        return total

    def logit(example, head, i, j):
        product = site.ctx.q[example, head, i] @ site.ctx.k[example, head, j] * site.ctx.scale
        bias, part = float(kernel[i - j + n - 1, head]), wave(i - j, head)
        if kind == "remove-band-off-sink" and j == 0:
            return product + bias
        return product + (part if kind == "keep-band" else bias - part)

    expected = brute_force(site, logit)
    torch.testing.assert_close(site.filled(f"{kind}@1of2"), expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_variant_of_the_tree_equals_the_model_with_one_head_replaced(kind):
    model, data = decoder(), examples(6)
    means = data_means(model, data, lags=True)
    variants = [(HeadAblation(layer, 1, f"{kind}@0of3"),) for layer in range(3)]
    found = torch.zeros(3, 6, 7, dtype=torch.float64)
    for piece in ablated_logits(model, data, variants, means=means):
        found[piece.variants[:, None], piece.examples] = piece.logits.double()
    for place, variant in enumerate(variants):
        with ablated(model, *variant, means=means), torch.no_grad():
            torch.testing.assert_close(found[place], model(data), atol=1e-6, rtol=0)


def test_a_band_of_everything_is_content_only():
    site = sites(decoder(), examples(4))[0]
    torch.testing.assert_close(site.filled("remove-band@0of1"), site.filled("content-only"))
    torch.testing.assert_close(site.filled("keep-band@0of1"), site.outputs)


def test_removing_a_band_of_no_encoding_changes_nothing():
    site = sites(decoder("nope"), examples(4))[0]
    for kind in KINDS:
        torch.testing.assert_close(site.filled(f"{kind}@1of4"), site.outputs)


@pytest.mark.parametrize("n", [1, 2, 5, 16, 33])
@pytest.mark.parametrize("of", [1, 2, 3, 4, 7])
def test_bands_divide_all_pairs_and_all_waves(n, of):
    bands = [Band(index=index, of=of) for index in range(of)]
    assert [place for band in bands for place in band.among(n)] == list(range(n))
    assert sorted(wave for band in bands for wave in band.waves(n)) == list(range(1, n))
    assert of > n or all(band.among(n) for band in bands)
    assert of >= n or all(band.waves(n) for band in bands)


def test_every_wave_may_have_a_band_of_its_own():
    assert [list(Band(index=index, of=11).waves(12)) for index in range(11)] == [
        [k] for k in range(11, 0, -1)
    ]


def test_the_most_bands_are_the_pairs_that_turn_or_the_waves_of_a_kernel():
    partial, bias = PartialDims(head_dim=16, fraction=0.25), ALiBi(n_heads=2)
    assert most_bands(partial, 16, 20) == 2
    assert most_bands(bias, 16, 20) == 19
    heads = PerHead.Config(n_heads=2, groups=(Group(encoding=RoPE.Config(head_dim=16)),))
    assert most_bands(heads.build(), 16, 20) == 8


def test_bands_of_a_kernel_and_its_mean_add_up_to_it():
    kernel = torch.randn(13, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    parts = sum(kernel_band(kernel, Band(index=index, of=4)) for index in range(4))
    torch.testing.assert_close(parts + kernel.mean(0), kernel)


def test_the_first_band_holds_the_highest_frequencies():
    pairs = RotatingPairs(torch.tensor([0.1, -1.0, 0.0, 0.5]), torch.zeros(4, 2, dtype=torch.int64))
    assert [pairs.members(Band(index=index, of=3)).tolist() for index in range(3)] == [[1], [3], [0]]


def test_partial_rotation_has_bands_among_the_pairs_that_turn():
    pairs = rotating_pairs(PartialDims(head_dim=16, fraction=0.25), 16)
    assert pairs.coordinates.tolist() == [[0, 1], [2, 3]]


def test_latent_attention_has_bands_among_the_pairs_of_its_last_coordinates():
    model, data = decoder(attention=LATENT), examples(4)
    site = sites(model, data)[0]
    assert rotating_pairs(site.encoding, 10).coordinates.tolist() == [[6, 7], [8, 9]]
    torch.testing.assert_close(site.filled("remove-band@0of1"), site.filled("content-only"))


@pytest.mark.parametrize("encoding", ["shaw", "pope", "deberta"])
def test_encodings_without_bands_are_refused(encoding):
    site = sites_without_means(decoder(encoding), examples(2))
    with pytest.raises(UnsupportedError, match="has no"):
        site.filled("remove-band@0of2")


def test_bands_of_a_bias_need_whole_positions():
    encoding = ALiBi(n_heads=2)
    banded = Banded(encoding, Band(index=0, of=2), "remove", width=4, n_heads=2, causal=True)
    q, places = torch.zeros(1, 2, 3, 4), torch.tensor([[0.0, 0.5, 1.0]])
    with pytest.raises(UnsupportedError, match="whole-numbered positions"):
        banded.bias(Context(q, q, places, places))


def sites_without_means(model, data):
    return next(iter(intact_sites(Piece.of(model, data))))


def test_settings_of_fills_are_checked():
    with pytest.raises(ConfigError, match="such as 0of4"):
        read_band("high")
    with pytest.raises(ConfigError, match="between 0 and 3"):
        read_band("4of4")
    with pytest.raises(ConfigError, match="takes no setting"):
        fill_of("zero@1")
    with pytest.raises(UnsupportedError, match="takes lags"):
        sites_without_means(decoder(), examples(2)).filled("freeze-band@0of3")


@pytest.mark.parametrize("change", ["remove", "keep"])
@pytest.mark.parametrize("inner", [ALiBi(n_heads=4), RoPE(head_dim=8, schedule="yarn"), RoPE(head_dim=8)])
def test_an_encoding_with_a_changed_band_declares_the_laws_that_it_keeps(inner, change):
    banded = Banded(inner, Band(index=0, of=2), change, width=8, n_heads=4, causal=True)
    assert all(check.honest for check in check_laws(banded))


def test_changes_are_checked():
    options = {"width": 8, "n_heads": 4, "causal": True}
    with pytest.raises(ConfigError, match="lags must give the mean lag of each head"):
        Banded(RoPE(head_dim=8), Band(index=0, of=2), "freeze", **options)
