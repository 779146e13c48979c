"""Token inputs for a Hugging Face model: one token everywhere, padded or not."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from spectrope.core.errors import UnsupportedError


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


@contextmanager
def runs_at(length: int, model: nn.Module) -> Iterator[None]:
    """Turn an index beyond a table into an error that a user can mend.

    Raises:
        UnsupportedError: If what is run fails, and the configuration says that it is too long.
    """
    try:
        yield
    except (IndexError, RuntimeError) as error:
        limit = trained_length(model)
        beyond = limit is not None and length > limit
        if not beyond:
            raise
        name = type(model).__name__
        raise UnsupportedError(
            f"{name} does not run at length {length}; its configuration gives it {limit} positions."
        ) from error


def _device(model: nn.Module) -> torch.device:
    return next(model.parameters()).device
