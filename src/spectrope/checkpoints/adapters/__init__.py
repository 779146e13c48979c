"""Hugging Face models: loading them, and reading what their attention kernels receive."""

from spectrope.checkpoints.adapters.call import Call
from spectrope.checkpoints.adapters.hooks import (
    Enough,
    after,
    before,
    equal_tokens_once,
    evaluating,
    idle_feed_forwards,
    idle_head,
    running,
    states_of,
    with_all_states,
    with_states,
)
from spectrope.checkpoints.adapters.inputs import (
    FAILURES,
    POOLS,
    Inputs,
    runs_at,
    short_length,
    trained_length,
)
from spectrope.checkpoints.adapters.load import drawn_weights, open_model
from spectrope.checkpoints.adapters.packing import sequences_told_apart
from spectrope.checkpoints.adapters.record import recorded
from spectrope.checkpoints.adapters.sites import (
    HeadSite,
    Role,
    blocks_of,
    first_of,
    head_sites,
    in_parts,
    linear_weight,
    rest_of,
)
from spectrope.checkpoints.adapters.slices import parse_layers
from spectrope.checkpoints.adapters.structure import (
    block_of,
    checkpoint_folder,
    declared_config,
    is_checkpoint,
    is_library_family,
    layer_name,
    sees_future,
)
from spectrope.checkpoints.adapters.texts import (
    Tokenizer,
    check_tokenizer,
    decoder_start,
    drawable_tokens,
    encoded,
    open_tokenizer,
    sees_ahead,
)

__all__ = [
    "FAILURES",
    "POOLS",
    "Call",
    "Enough",
    "HeadSite",
    "Inputs",
    "Role",
    "Tokenizer",
    "after",
    "before",
    "block_of",
    "blocks_of",
    "check_tokenizer",
    "checkpoint_folder",
    "declared_config",
    "decoder_start",
    "drawable_tokens",
    "drawn_weights",
    "encoded",
    "equal_tokens_once",
    "evaluating",
    "first_of",
    "head_sites",
    "idle_feed_forwards",
    "idle_head",
    "in_parts",
    "is_checkpoint",
    "is_library_family",
    "layer_name",
    "linear_weight",
    "open_model",
    "open_tokenizer",
    "parse_layers",
    "recorded",
    "rest_of",
    "running",
    "runs_at",
    "sees_ahead",
    "sees_future",
    "sequences_told_apart",
    "short_length",
    "states_of",
    "trained_length",
    "with_all_states",
    "with_states",
]
