"""Scores of predictions."""

import torch

from spectrope.checkpoints.ablation.cuts import hit_and_loss


def test_of_equal_logits_one_class_is_right():
    """Logits in bfloat16 tie often; without a tie, the target with the largest logit is right."""
    targets = torch.arange(8)
    hit, loss = hit_and_loss(torch.zeros(8, 8, dtype=torch.bfloat16), targets)
    assert hit.sum() == 1
    torch.testing.assert_close(loss, torch.full((8,), 8.0).log())
    logits = torch.randn(8, 8, generator=torch.Generator().manual_seed(0))
    assert torch.equal(hit_and_loss(logits.clone(), targets)[0], (logits.argmax(1) == targets).float())
