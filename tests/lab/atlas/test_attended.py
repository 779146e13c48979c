"""Sums over batches of sequences say where heads attend, whatever the batches."""

import pytest
import torch

from spectrope.lab.atlas.attended import AttendedSums, attended_heads, mean_lags


def patterns(n, t, heads=2):
    """Random causal attention, tokens of which few differ, and lengths that leave padding."""
    draw = torch.Generator().manual_seed(0)
    logits = torch.randn(n, heads, t, t, generator=draw, dtype=torch.float64)
    later = torch.ones(t, t, dtype=torch.bool).triu(1)
    ids = torch.randint(6, (n, t), generator=draw)
    lengths = torch.randint(3, t + 1, (n,), generator=draw)
    lengths[0] = t
    return logits.masked_fill(later, -torch.inf).softmax(-1), ids, torch.arange(t) < lengths[:, None]


def test_batches_change_no_mean():
    pattern, ids, real = patterns(7, 9)
    whole, sums = attended_heads(3, pattern, ids, real), AttendedSums()
    for rows in torch.arange(7).split(2):
        width = int(real[rows].sum(1).max())
        sums.add(pattern[rows, :, :width, :width], ids[rows, :width], real[rows, :width])
    for head, expected in zip(sums.heads(3), whole, strict=True):
        assert (head.layer, head.head, head.examples) == (3, expected.head, expected.examples)
        for name in ("reach", "sink", "previous", "induction", "kernel"):
            assert getattr(head, name) == pytest.approx(getattr(expected, name), rel=1e-12)


def test_a_batch_of_two_tokens_adds_no_query():
    pattern, ids, real = patterns(3, 9)
    sums = AttendedSums()
    sums.add(pattern[:1, :, :2, :2], ids[:1, :2], real[:1, :2])
    sums.add(pattern, ids, real)
    whole = attended_heads(0, pattern, ids, real)
    assert [head.reach for head in sums.heads(0)] == [head.reach for head in whole]


def test_lags_are_means_over_the_attention_that_a_sink_leaves():
    pattern, ids, real = patterns(3, 9)
    sums = AttendedSums()
    sums.add(0.25 * pattern, ids, real, with_sinks=True)
    for head, expected in zip(sums.heads(0), attended_heads(0, pattern, ids, real), strict=True):
        assert head.reach == pytest.approx(expected.reach)
        assert head.previous == pytest.approx(0.25 * expected.previous)
    lag = torch.arange(9)[:, None] - torch.arange(9)
    assert float(mean_lags(torch.zeros(1, 1, 9, 9), lag, with_sinks=True).abs().max()) == 0
