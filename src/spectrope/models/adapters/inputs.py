"""Token inputs for a Hugging Face model: one token everywhere, padded or not."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Inputs:
    """One token id at every position of a batch.

    Args:
        batch: Sequences.
        length: Positions of each.
        token: The id.
    """

    batch: int
    length: int
    token: int = 5

    def of(self, model: nn.Module, mask: Tensor | None = None) -> dict[str, Any]:
        """Arguments for the model's forward call; `mask` is 1 at tokens and 0 at padding."""
        config: Any = model.config
        ids = torch.full((self.batch, self.length), self.token, device=_device(model))
        inputs: dict[str, Any] = {"input_ids": ids, "attention_mask": mask}
        if config.is_encoder_decoder:
            inputs |= {"decoder_input_ids": ids, "decoder_attention_mask": mask}
        if "use_cache" in config.to_dict():
            inputs["use_cache"] = False
        return {name: value for name, value in inputs.items() if value is not None}


def trained_length(model: nn.Module) -> int | None:
    """Positions that the configuration says the model takes; None if it says nothing."""
    config: Any = model.config
    text = config.get_text_config()
    names = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length")
    return next((int(getattr(text, name)) for name in names if getattr(text, name, None)), None)


def _device(model: nn.Module) -> torch.device:
    return next(model.parameters()).device
