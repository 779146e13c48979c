"""Spectra of heads whose answer is known, and of random ones against the functions for single heads."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.lab.ablation.models import decoder
from torch.testing import assert_close

from spectrope.core.config import from_dict
from spectrope.core.errors import UnsupportedError
from spectrope.encodings.base import ENCODINGS
from spectrope.encodings.parts import complex_pairs
from spectrope.encodings.per_head import Group, PerHead
from spectrope.encodings.positions.random_subset import RandomSubset
from spectrope.encodings.rope import RoPE
from spectrope.encodings.sum import Sum
from spectrope.lab.probes.heads import capture_heads
from spectrope.lab.probes.rotation import encoding_of_head, steady_rotation
from spectrope.lab.probes.shares import state_shares
from spectrope.lab.probes.spectrum import layer_spectrum, toeplitz_tests
from spectrope.models.decoder import Decoder, DecoderConfig
from spectrope.spectral import (
    band_gram,
    effective_ranks,
    factorisation_residuals,
    head_contraction,
    rope_logits,
    row_centred,
    toeplitz_shares_of_product,
)
from spectrope.stats.examples import mean_intervals
from spectrope.tasks.base import Batch

N = 10


def full(b=6, width=N, seed=0):
    """Random sequences without padding."""
    inputs = torch.randint(1, 17, (b, width), generator=torch.Generator().manual_seed(seed))
    return Batch(inputs, torch.zeros(b).long(), torch.full((b,), width))


def measured(model, batch, layer=0, **options):
    layers = []
    capture_heads(model, batch, layers.append)
    return layers[layer], layer_spectrum(layers[layer], N, **{"draws": 9, **options})


def silenced(model):
    """A decoder whose queries and keys are the same for all tokens: the bias of the projection."""
    with torch.no_grad():
        for block in model.blocks:
            block.heads.qkv.weight.zero_()
    return model


class TestKnownAnswers:
    """Heads without content show their encoding and nothing else."""

    def test_alibi_alone_is_toeplitz(self):
        model = silenced(decoder("alibi"))
        with torch.no_grad():
            model.blocks[0].heads.qkv.bias.zero_()
        _, found = measured(model, full(), draws=99)
        slopes = model.encoding_of(0).slopes
        for head, record in enumerate(found.heads):
            assert record["toeplitz"].estimate == pytest.approx(1)
            assert record["toeplitz_raw"].estimate == pytest.approx(1)
            assert record["toeplitz"].low == pytest.approx(1)
            assert record["toeplitz_content"] is None
            assert found.tests[head].p_value == pytest.approx(0.01)
            lags = -slopes[head].double().numpy() * np.arange(N)
            assert found.kernel.estimate[head] == pytest.approx(lags - lags.mean())

    def test_rope_on_constant_content_is_its_kernel_and_contracts_as_it(self):
        model = silenced(decoder("rope"))
        layer, found = measured(model, full())
        rotation = steady_rotation(model.encoding_of(0), 6)
        q, k = (x[0, 1].unflatten(-1, (3, 2)) for x in (layer.ctx.q, layer.ctx.k))
        z = (torch.view_as_complex(q.contiguous()) * torch.view_as_complex(k.contiguous()).conj())[0]
        lag = torch.arange(N)
        kernel = (z * torch.exp(1j * lag[:, None] * rotation.frequencies)).real.sum(1) / 6**0.5
        assert found.kernel.estimate[1] == pytest.approx((kernel - kernel.mean()).numpy())
        record = found.heads[1]
        assert record["toeplitz"].estimate == pytest.approx(1)
        assert record["toeplitz_content"] is None
        assert record["factorisation"].estimate == pytest.approx(0, abs=1e-12)
        turned = torch.linalg.svdvals(torch.tril(kernel[(lag[:, None] - lag).clamp(min=0)]))
        still = torch.linalg.svdvals(torch.tril((z.real.sum() / 6**0.5).expand(N, N)))
        assert record["contraction_raw_spectral"].estimate == pytest.approx((turned[0] / still[0]).item())

    def test_heads_without_encoding_have_no_contraction_and_no_bands(self):
        _, found = measured(decoder("nope"), full())
        undefined = {"contraction_spectral", "contraction_frobenius", "contraction_nuclear"}
        undefined |= {"contraction_raw_spectral", "factorisation", "toeplitz_content"}
        for record in found.heads:
            assert {name for name, interval in record.items() if interval is None} == undefined
        assert found.bands == (None,) * 4


def test_a_massive_coordinate_shows_in_its_head_and_its_band():
    layers = []
    capture_heads(decoder("rope"), full(), layers.append)
    layer = layers[0]
    q = torch.ones_like(layer.ctx.q)
    q[:, 1, :, 4] = 6.0  # Of 6 coordinates, in the third of three pairs.
    found = layer_spectrum(replace(layer, ctx=replace(layer.ctx, q=q)), N, 1)
    largest, even = 6 / (11 / 6), 1 / (11 / 6)
    assert found.heads[1]["massive_queries"].estimate == pytest.approx(largest)
    assert found.heads[0]["massive_queries"].estimate == pytest.approx(1)
    peaks = [found.bands[1].queries.at(band).estimate for band in range(3)]
    assert peaks == pytest.approx([even, even, largest])
    norms = torch.linalg.vector_norm(layer.ctx.k[:, 2, :N].double(), dim=1)
    ratio = (norms.amax(1) / norms.mean(1)).mean().item()
    assert found.heads[2]["massive_keys"].estimate == pytest.approx(ratio)
    assert max(found.bands[2].keys.at(band).estimate for band in range(3)) <= ratio + 1e-9


@pytest.mark.parametrize("name", ["tupe", "deberta"])
def test_a_constant_factor_contracts_nothing(name):
    _, found = measured(decoder(name), full())
    assert all(record["contraction_spectral"] is record["factorisation"] is None for record in found.heads)
    both = Sum.Config(parts=(RoPE.Config(), ENCODINGS.config(name)()))
    config = decoder(name).config
    encoding = both.fitted(**config.sizes).build()
    assert_close(steady_rotation(encoding, 6).frequencies, steady_rotation(encoding.terms[0], 6).frequencies)


@pytest.mark.parametrize("causal", [True, False])
def test_means_are_those_of_single_heads(causal):
    layer, found = measured(decoder("rope", causal=causal), full(), layer=1)
    q, k = (x[:, 2, :N] for x in (layer.ctx.q, layer.ctx.k))
    turned = list(zip(*(x[:, 2, :N] for x in layer.rotated), strict=True))
    plain = list(zip(q, k, strict=True))
    theta = steady_rotation(layer.encoding, 6).frequencies
    as_complex = [[complex_pairs(x.double()) for x in pair] for pair in plain]
    logits = [(rope_logits(*pair, theta), (pair[0] @ pair[1].mH).real) for pair in as_complex]
    ratios = [head_contraction(*pair, causal) for pair in logits]
    shares = [toeplitz_shares_of_product(*pair, causal) for pair in turned]
    expected = {
        "toeplitz": [share.gauge_fixed for share in shares],
        "toeplitz_raw": [share.raw for share in shares],
        "toeplitz_mean_removed": [share.mean_removed for share in shares],
        "toeplitz_content": [toeplitz_shares_of_product(*pair, causal).gauge_fixed for pair in plain],
        "contraction_spectral": [ratio.gauge_fixed.spectral for ratio in ratios],
        "contraction_frobenius": [ratio.gauge_fixed.frobenius for ratio in ratios],
        "contraction_nuclear": [ratio.gauge_fixed.nuclear for ratio in ratios],
        "contraction_raw_spectral": [ratio.raw.spectral for ratio in ratios],
        "factorisation": [factorisation_residuals(*pair, theta, causal=causal) for pair in as_complex],
    }
    for name, values in expected.items():
        interval = mean_intervals(np.array(values)).at()
        for end in ("estimate", "low", "high"):
            assert getattr(found.heads[2][name], end) == pytest.approx(getattr(interval, end)), name
    grams = [band_gram(*map(complex_pairs, pair), causal) for pair in turned]
    bands = np.array([gram.shares.numpy() for gram in grams])
    assert found.bands[2].shares.estimate == pytest.approx(bands.mean(0))
    assert found.bands[2].frequencies == pytest.approx(np.stack([theta, theta], 1))


def test_ranks_are_those_of_gauge_fixed_causal_logits():
    layer, found = measured(decoder("nope"), full())
    logits = row_centred(layer.logits[:, 0, :N, :N].double(), causal=True)
    ranks = effective_ranks(torch.linalg.svdvals(logits))
    assert found.heads[0]["stable_rank"].estimate == pytest.approx(ranks.stable.mean().item())
    assert found.heads[0]["entropy_rank"].estimate == pytest.approx(ranks.entropy.mean().item())


def test_padding_is_never_read():
    batch = full(width=12)
    model = decoder("alibi")
    padded = Batch(batch.inputs.clone(), batch.labels, torch.full((6,), N))
    other = Batch(padded.inputs.clone(), batch.labels, padded.lengths)
    other.inputs[:, N:] = 3
    (_, first), (_, second) = measured(model, padded), measured(model, other)
    assert first.heads == second.heads
    assert first.tests == second.tests


def test_each_head_has_the_rotation_of_its_own_group():
    config = PerHead.Config(groups=(Group(heads=2, encoding=RoPE.Config()),))
    model = Decoder(
        DecoderConfig(n_heads=4, head_dim=6, d_model=16, n_layers=1, max_length=12, encoding=config)
    )
    _, found = measured(model.eval(), full())
    assert [record["contraction_spectral"] is None for record in found.heads] == [False, False, True, True]
    assert [band is None for band in found.bands] == [False, False, True, True]
    assert isinstance(encoding_of_head(model.encoding_of(0), 1), RoPE)


def test_steady_rotations_are_found_inside_sums_alone():
    assert_close(
        steady_rotation(Sum.Config().fitted(head_dim=4).build(), 4).frequencies,
        torch.tensor([1, 0.01]).double(),
    )
    for name in ("partial_dims", "xpos", "nope", "alibi", "fope"):
        assert steady_rotation(ENCODINGS.config(name)().build(), 16) is None, name
    for schedule in ("shuffled", "longrope", "dynamic_ntk"):
        assert steady_rotation(from_dict(RoPE.Config, {"schedule": schedule}).build(), 16) is None, schedule


def test_content_aware_logits_are_not_permuted():
    for name in ("cope", "path"):
        _, found = measured(decoder(name), full())
        assert found.tests == (None,) * 4
        assert found.heads[0]["toeplitz"] is not None


def test_positions_that_are_not_equally_spaced_are_refused():
    model = decoder("rope", positions=RandomSubset())
    with pytest.raises(UnsupportedError, match="equally spaced positions"):
        measured(model, full())


class TestSignificance:
    """The test of Toeplitz shares keeps its size and sees structure."""

    def test_its_size_is_kept_for_content_alone(self):
        p = []
        for seed in range(40):
            draw = torch.Generator().manual_seed(seed)
            q, k = torch.randn(2, 3, 5, 8, 4, generator=draw, dtype=torch.float64)
            p += [test.p_value for test in toeplitz_tests(q @ k.mT, True, 19, seed)]
        assert np.mean(np.array(p) <= 0.05) < 0.09
        assert 0.4 < np.mean(p) < 0.65

    def test_weak_structure_shared_by_examples_is_found(self):
        draw = torch.Generator().manual_seed(0)
        q, k = torch.randn(2, 30, 1, 12, 4, generator=draw, dtype=torch.float64)
        lag = torch.arange(12)[:, None] - torch.arange(12)
        (test,) = toeplitz_tests(q @ k.mT + (lag % 3 == 0), True, 99, 0)
        assert test.p_value == pytest.approx(0.01)
        assert test.null_mean < test.null_quantile < test.statistic

    def test_rows_alone_cannot_be_tested(self):
        logits = torch.ones(2, 1, 6, 6, dtype=torch.float64)
        assert toeplitz_tests(logits, True, 9, 0) == (None,)


class TestShares:
    """Hidden states made of known parts."""

    def test_sums_of_token_and_position_leave_no_residual(self):
        draw = torch.Generator().manual_seed(0)
        tokens = torch.randint(0, 5, (40, 7), generator=draw)
        content, position = torch.randn(5, 3, generator=draw), 2 * torch.randn(7, 3, generator=draw)
        found = state_shares(content[tokens] + position, tokens)
        assert found.residual.estimate == pytest.approx(0, abs=1e-9)
        assert found.position.estimate > found.content.estimate > 0.05
        assert found.content.low < found.content.estimate < found.content.high

    def test_noise_has_the_null_shares(self):
        draw = torch.Generator().manual_seed(0)
        tokens = torch.randint(0, 5, (60, 7), generator=draw)
        found = state_shares(torch.randn(60, 7, 8, generator=draw), tokens)
        assert found.position_null == pytest.approx(6 / 419)
        assert found.position.estimate == pytest.approx(found.position_null, rel=0.5)
        assert found.content.estimate == pytest.approx(found.content_null, rel=0.5)

    def test_first_layer_without_an_absolute_term_is_content(self):
        model, batch = decoder("rope"), full(20)
        layers = []
        capture_heads(model, batch, layers.append)
        found = state_shares(layers[0].ctx.x_q, batch.inputs)
        assert found.content.estimate == pytest.approx(1)
        assert found.position.estimate == pytest.approx(0, abs=1e-12)
        assert state_shares(layers[1].ctx.x_q, batch.inputs).residual.estimate > 0.01
