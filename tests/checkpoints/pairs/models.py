"""Variants of one small model, as conversions, merges and training leave it."""

import copy

import torch
from tests.checkpoints.audit.families import GROUPED, ROPES, build

import spectrope as sp

LENGTH = 48
ROPE = {"rope_parameters": ROPES["default"]}


def pair(*models, role):
    return sp.compatible(*models, role=role, length=LENGTH, watch=sp.unwatched)


def tuned(model, size=0.02, seed=1):
    """The model with its weights a little off, as further training leaves them."""
    other = copy.deepcopy(model)
    generator = torch.Generator().manual_seed(seed)
    for weight in other.parameters():
        weight.data += size * weight.data.std() * torch.randn(weight.shape, generator=generator)
    return other


def reordered(model, order, names=("q_proj", "k_proj"), layers=(0, 1)):
    """The model with rows of projections in another order within each head."""
    other = copy.deepcopy(model)
    for layer in layers:
        for name in names:
            projection = getattr(other.model.layers[layer].self_attn, name)
            rows = projection.weight.data.unflatten(0, (-1, len(order)))
            projection.weight.data = rows[:, order].flatten(0, 1).contiguous()
    return other


HALVES_TO_ADJACENT = torch.arange(16).view(2, 8).T.flatten()


def cohere_of(model):
    """A Cohere, whose code pairs adjacent coordinates, with the projections of a Llama."""
    other = build("Cohere", **(GROUPED | {"rope_parameters": ROPES["default"]}))
    for ours, theirs in zip(other.model.layers, model.model.layers, strict=True):
        for name in ("q_proj", "k_proj"):
            getattr(ours.self_attn, name).weight.data = getattr(theirs.self_attn, name).weight.data.clone()
    return other


def reordered_cohere(model):
    return reordered(cohere_of(model), HALVES_TO_ADJACENT)
