"""The attention layers of the local copy, with the rotation that each applies."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from spectrope.checkpoints.adapters import layer_name, trained_length
from spectrope.checkpoints.adapters.substitute import Given
from spectrope.checkpoints.audit.layout import Layout
from spectrope.checkpoints.probes.constant_content import attention_modules
from spectrope.checkpoints.training.expected import expected_layers
from spectrope.core import UnsupportedError
from spectrope.encodings import geometric

PROBED = 256  # Positions over which rotations are measured.


@dataclass(frozen=True, eq=False)
class AttentionSite:
    """One attention layer.

    Args:
        module: That attends.
        layer: Its number, from 0.
        layout: Which coordinates turn; None where none do.
        frequencies: Radians per position of each pair, empty where none turn.
        base: Of the nearest geometric progression of frequencies.
        trained: Positions that the configuration names.
    """

    module: nn.Module
    layer: int
    layout: Layout | None
    frequencies: Float[Tensor, " m"]
    base: float
    trained: int

    @cached_property
    def unscaled(self) -> Float[Tensor, " m"]:
        """The geometric progression of the base, without any scaling."""
        assert self.layout is not None
        return geometric(self.base, self.layout.width)

    @property
    def scaled(self) -> bool:
        """Whether the layer turns by other frequencies than a geometric progression's."""
        return not torch.allclose(self.unscaled, self.frequencies, rtol=2e-3)


@dataclass(frozen=True, eq=False)
class LocalCopy:
    """A model whose faults can be simulated.

    Args:
        model: A causal language model of transformers.
        sites: Its attention layers, in the order of the layers.
    """

    model: nn.Module
    sites: Mapping[nn.Module, AttentionSite]

    @classmethod
    def of(cls, model: nn.Module) -> "LocalCopy":
        """Measure the rotations of a model.

        Raises:
            UnsupportedError: If no attention layer was found.
        """
        modules = dict(model.named_modules())
        names = attention_modules(model)
        if not names:
            raise UnsupportedError(f"{type(model).__name__} has no attention layer that can be simulated.")
        config: Any = model.config
        trained = trained_length(model) or PROBED
        found = expected_layers(model, names, min(PROBED, trained))
        sites = {}
        for name in names:
            turning = found[name].encoding.turning
            frequencies = torch.tensor(turning.frequencies if turning else (), dtype=torch.float64)
            frequencies = _exact(model, frequencies)
            original = _original(config.get_text_config(), trained)
            sites[modules[name]] = AttentionSite(
                modules[name], layer_name(name)[1], found[name].layout, frequencies,
                _base(frequencies), original,
            )  # fmt: skip
        return cls(model, sites)

    @property
    def layers(self) -> list[int]:
        """Numbers of the layers."""
        return sorted({site.layer for site in self.sites.values()})


def _exact(model: nn.Module, measured: Float[Tensor, " m"]) -> Float[Tensor, " m"]:
    """The frequencies that a rotary module keeps, where they are those that were measured."""
    for name, buffer in model.named_buffers():
        if re.search(r"inv_freq$", name) and buffer.shape == measured.shape:
            kept = buffer.double().cpu()
            if torch.allclose(kept, measured, rtol=1e-3, atol=1e-5):
                return kept
    return measured


def _base(frequencies: Float[Tensor, " m"]) -> float:
    """The base by the two fastest pairs, which scaling leaves alone more often than others."""
    if len(frequencies) < 2 or not frequencies[0] > frequencies[1] > 0:
        return 1e4
    return float((frequencies[0] / frequencies[1]) ** len(frequencies))


def _original(config: Any, trained: int) -> int:
    """Positions of the training before any extension."""
    parameters = getattr(config, "rope_parameters", None) or {}
    return int(parameters.get("original_max_position_embeddings") or trained)


def places(given: Given) -> Float[Tensor, "t 1"]:
    """Positions 0, 1, ... as a column."""
    return torch.arange(given.q.shape[2], dtype=torch.float64, device=given.q.device)[:, None]
