"""Gradients and growth by head, against differentiation and displacement of one head's weights alone."""

from dataclasses import replace

import pytest
import torch
from tests.lab.training.test_loop import CPU, tiny

from spectrope.core.errors import UnsupportedError
from spectrope.encodings.factorised import FactorisedTable
from spectrope.lab.probes.head_factors import factor_gradients, factor_growth, head_factors, projections
from spectrope.lab.runs import build_model
from spectrope.lab.training.scales import experiment
from spectrope.models.decoder import Decoder


def setting(encoding=None) -> tuple[Decoder, object]:
    one = tiny()
    changed = one if encoding is None else replace(one, model=replace(one.model, encoding=encoding))
    data, _ = one.task.build().split(40, 10, 0)
    return build_model(changed, CPU).double(), data[:8].trimmed()


def test_gradients_are_those_of_queries_and_keys_head_by_head():
    model, batch = setting()
    energies = factor_gradients(model, batch)
    assert all(p.grad is None for p in model.parameters())
    torch.nn.functional.cross_entropy(model(batch), batch.labels).backward()
    for block, found in zip(model.blocks, energies, strict=True):
        q, k, _ = block.heads.qkv.weight.grad.unflatten(0, (3, model.config.n_heads, -1))
        for head, energy in enumerate(found):
            torch.testing.assert_close(energy, q[head].square().sum() + k[head].square().sum())


def test_a_factorised_table_has_factors_of_its_own():
    model, batch = setting(FactorisedTable.Config())
    energies = factor_gradients(model, batch)
    torch.nn.functional.cross_entropy(model(batch), batch.labels).backward()
    for layer, found in enumerate(energies):
        table = model.encoding_of(layer)
        for head, energy in enumerate(found):
            own = table.heads.grad[head].square().sum() + table.lags.grad[:, head].square().sum()
            torch.testing.assert_close(energy, own)


def test_queries_and_keys_beside_a_factorised_table_have_their_gradient_too():
    model, batch = setting(FactorisedTable.Config())
    energies = factor_gradients(model, batch, projections)
    torch.nn.functional.cross_entropy(model(batch), batch.labels).backward()
    for block, found in zip(model.blocks, energies, strict=True):
        q, k, _ = block.heads.qkv.weight.grad.unflatten(0, (3, model.config.n_heads, -1))
        torch.testing.assert_close(found, q.square().sum((1, 2)) + k.square().sum((1, 2)))


@pytest.mark.parametrize("encoding", [None, FactorisedTable.Config()])
def test_growth_is_of_the_head_that_moved(encoding):
    (before, _), (after, _) = setting(encoding), setting(encoding)
    with torch.no_grad():
        if encoding is None:
            after.blocks[1].heads.qkv.weight[after.config.head_dim] += 0.5  # Second head's first query.
            expected = 0.25 * after.config.d_model
        else:
            after.encoding_of(1).lags[:, 1] += 0.5
            expected = 0.25 * after.encoding_of(1).lags[:, 1].numel()
    first, second = factor_growth(before, after)
    assert first.tolist() == [0.0, 0.0]
    assert second.tolist() == pytest.approx([0.0, expected])


def test_latent_attention_has_no_factors_by_head():
    model = build_model(experiment("distance", "mla"), CPU)
    with pytest.raises(
        UnsupportedError, match="only multi-head attention has separate factors per head; got Latent"
    ):
        head_factors(model)
