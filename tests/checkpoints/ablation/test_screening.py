"""First-order effects of a checkpoint's heads against finite differences at each position."""

from functools import partial

import pytest
import torch
from tests.checkpoints.ablation.test_ablation import built
from tests.checkpoints.ablation.test_ablation import sequences as sequences_for
from tests.checkpoints.ablation.test_bands import data, llama

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
def by_differences(subject, sequences, change, replacement, size=STEP):
    """The sum over positions of the absolute effects of small steps towards the replacement there."""
    model, site = subject.model, subject.sites[change.layer]
    columns = slice(change.head * site.width, (change.head + 1) * site.width)
    projection = model.get_submodule(site.projection)
    total = torch.zeros(len(sequences))
    for position in range(replacement.shape[1]):

        def step(module, args, size, position=position):
            heads = args[0].clone()
            towards = replacement[:, position, columns] - heads[:, position, columns]
            heads[:, position, columns] += size * towards
            return (heads,)

        ends = []
        for signed in (size, -size):
            hook = projection.register_forward_pre_hook(partial(step, size=signed))
            ends.append(log_odds(model, sequences))
            hook.remove()
        total += ((ends[0] - ends[1]) / (2 * size)).abs()
    return float(total.mean())


@pytest.mark.parametrize("fill", ["zero", "content-only", "remove-band@1of2", "freeze-band@0of2"])
def test_effects_are_the_slopes_at_every_position(fill):
    model, sequences = llama(), data()
    subject, change = CheckpointSubject.of(model), HeadAblation(0, 2, fill)
    means, calls = rotary_means(subject, sequences), []
    with rotations_recorded(model, subject.rotations, calls.append), torch.no_grad():
        subject.run(sequences)
    intact = calls[0].intact()
    replacement = torch.zeros_like(intact) if fill == "zero" else calls[0].output(fill, means[0])
    (found,) = first_order_effects(subject, sequences, [change], FillSources(site_means=means))
    slopes = by_differences(subject, sequences, change, replacement)
    assert found == pytest.approx(slopes, rel=1e-3)
    assert found > 1e-3


def test_batches_change_nothing():
    model, sequences = llama(), data()
    subject = CheckpointSubject.of(model)
    changes = [HeadAblation(layer, head, "zero") for layer in range(2) for head in range(4)]
    sources = FillSources.over(subject, sequences, fills_of([tuple(changes)]))
    whole = first_order_effects(subject, sequences, changes, sources)
    pieces = first_order_effects(subject, sequences, changes, sources, tokens=sequences.width)
    assert pieces == pytest.approx(whole, rel=1e-9)


@pytest.mark.sampled
@pytest.mark.parametrize("fill", ["zero", "mean", "resample"])
@pytest.mark.parametrize(("family", "place"), [("gpt2", 1), ("t5", 0), ("t5", 5), ("bert", 1)])
def test_models_without_rotations_have_effects_too(family, place, fill):
    """Of T5, a head of the encoder and one of attention to it; its ReLUs and slopes need small steps."""
    subject, sequences = CheckpointSubject.of(built(family)), sequences_for(family, n=3)
    sources, change = FillSources.over(subject, sequences, [fill]), HeadAblation(place, 2, fill)
    with torch.no_grad():
        replacement = torch.zeros_like(subject.captured(sequences)[place])
        if fill == "mean":
            replacement += sources.means[place]
        if fill == "resample":
            replacement += subject.captured(sources.donors)[place]
    (found,) = first_order_effects(subject, sequences, [change], sources)
    slopes = by_differences(subject, sequences, change, replacement, size=4e-4)
    assert found == pytest.approx(slopes, rel=1e-3)
    assert found > 1e-3
