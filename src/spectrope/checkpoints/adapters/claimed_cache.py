"""Cache filled with zeros, which represents tokens that were never computed."""

from typing import Any

import torch
from torch import Tensor


def cache_of(past: int) -> Any:
    """Create a cache for transformers models that holds zero keys and values for a number of tokens."""
    from transformers import DynamicCache

    class Claimed(DynamicCache):
        """Zeros before the keys and values that are given."""

        def get_seq_length(self, layer_idx: int = 0) -> int:
            return past

        def get_query_offset(self, layer_idx: int = 0) -> int:
            return past

        def get_mask_sizes(self, query_length: int, layer_idx: int = 0) -> tuple[int, int]:
            return past + query_length, 0

        def update(
            self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
        ) -> tuple[Tensor, Tensor]:
            return _behind_zeros(key_states, past), _behind_zeros(value_states, past)

    return Claimed()


def _behind_zeros(x: Tensor, past: int) -> Tensor:
    return torch.cat([x.new_zeros(*x.shape[:2], past, x.shape[3]), x], 2)
