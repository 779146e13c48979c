"""First-order effects of a checkpoint's heads against finite differences at each position."""

from functools import partial

import pytest
import torch
from tests.checkpoints.ablation.test_bands import DIM, data, llama

from spectrope.checkpoints.ablation.rotary import rotations_recorded
from spectrope.checkpoints.ablation.screening import first_order_effects
from spectrope.checkpoints.ablation.sources import FillSources, rotary_means
from spectrope.checkpoints.ablation.subject import CheckpointSubject
from spectrope.lab import HeadAblation, fills_of

STEP = 0.02  # Norms of the model are in float32.


def log_odds(model, sequences):
    """Mean log odds of the targets of each sequence, written out."""
    probabilities = model(**sequences.inputs(1)).logits.softmax(-1)
    wanted = probabilities.gather(-1, sequences.targets.clamp(min=0)[..., None])[..., 0]
    odds = (wanted / (1 - wanted)).log() * sequences.scored
    return odds.sum(1) / sequences.scored.sum(1)


@torch.no_grad()
def by_differences(model, sequences, change, replacement):
    """The sum over positions of the absolute effects of small steps towards the replacement there."""
    columns = slice(change.head * DIM, (change.head + 1) * DIM)
    projection = model.model.layers[change.layer].self_attn.o_proj
    total = torch.zeros(len(sequences))
    for position in range(sequences.width):

        def step(module, args, size, position=position):
            heads = args[0].clone()
            towards = replacement[:, position, columns] - heads[:, position, columns]
            heads[:, position, columns] += size * towards
            return (heads,)

        ends = []
        for size in (STEP, -STEP):
            hook = projection.register_forward_pre_hook(partial(step, size=size))
            ends.append(log_odds(model, sequences))
            hook.remove()
        total += ((ends[0] - ends[1]) / (2 * STEP)).abs()
    return float(total.mean())


@pytest.mark.parametrize("fill", ["zero", "content-only", "remove-band@1of2", "freeze-band@0of2"])
def test_effects_are_the_slopes_at_every_position(fill):
    model, sequences = llama(), data()
    subject, change = CheckpointSubject.of(model), HeadAblation(0, 2, fill)
    means, calls = rotary_means(subject, sequences), []
    with rotations_recorded(model, calls.append), torch.no_grad():
        subject.run(sequences)
    intact = calls[0].intact()
    replacement = torch.zeros_like(intact) if fill == "zero" else calls[0].output(fill, means[0])
    (found,) = first_order_effects(subject, sequences, [change], FillSources(site_means=means))
    assert found == pytest.approx(by_differences(model, sequences, change, replacement), rel=1e-3)
    assert found > 1e-3


def test_batches_change_nothing():
    model, sequences = llama(), data()
    subject = CheckpointSubject.of(model)
    changes = [HeadAblation(layer, head, "zero") for layer in range(2) for head in range(4)]
    sources = FillSources.over(subject, sequences, fills_of([tuple(changes)]))
    whole = first_order_effects(subject, sequences, changes, sources)
    pieces = first_order_effects(subject, sequences, changes, sources, tokens=sequences.width)
    assert pieces == pytest.approx(whole, rel=1e-9)
