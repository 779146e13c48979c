"""Hugging Face models: loading them, and reading what their attention kernels receive."""

from spectrope.checkpoints.adapters.call import Call
from spectrope.checkpoints.adapters.generation import plain_generation
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
    ordinary_token,
    runs_at,
    short_length,
    trained_length,
)
from spectrope.checkpoints.adapters.interface import attention_implementations
from spectrope.checkpoints.adapters.load import drawn_weights, ignored_weights, open_model, require_own_head
from spectrope.checkpoints.adapters.own_fields import HEAD_WIDTHS, HEADS, WIDTHS
from spectrope.checkpoints.adapters.packing import sequences_told_apart
from spectrope.checkpoints.adapters.projections import linear_weight
from spectrope.checkpoints.adapters.record import recorded
from spectrope.checkpoints.adapters.sites import (
    HeadSite,
    Role,
    blocks_of,
    first_of,
    head_sites,
    in_parts,
    rest_of,
)
from spectrope.checkpoints.adapters.slices import omitted_layers, parse_layers
from spectrope.checkpoints.adapters.sounds import fixed_positions, is_sound_encoder, scale_of
from spectrope.checkpoints.adapters.structure import (
    block_of,
    checkpoint_folder,
    declared_config,
    is_checkpoint,
    is_library_family,
    layer_name,
    sees_future,
    whole_config,
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
    "HEADS",
    "HEAD_WIDTHS",
    "POOLS",
    "WIDTHS",
    "Call",
    "Enough",
    "HeadSite",
    "Inputs",
    "Role",
    "Tokenizer",
    "after",
    "attention_implementations",
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
    "fixed_positions",
    "head_sites",
    "idle_feed_forwards",
    "idle_head",
    "ignored_weights",
    "in_parts",
    "is_checkpoint",
    "is_library_family",
    "is_sound_encoder",
    "layer_name",
    "linear_weight",
    "omitted_layers",
    "open_model",
    "open_tokenizer",
    "ordinary_token",
    "parse_layers",
    "plain_generation",
    "recorded",
    "require_own_head",
    "rest_of",
    "running",
    "runs_at",
    "scale_of",
    "sees_ahead",
    "sees_future",
    "sequences_told_apart",
    "short_length",
    "states_of",
    "trained_length",
    "whole_config",
    "with_all_states",
    "with_states",
]
