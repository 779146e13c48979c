"""Token inputs for a Hugging Face model: one token everywhere, padded or not."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from spectrope.checkpoints.adapters.parts import models_within
from spectrope.checkpoints.adapters.sounds import fixed_positions, is_sound_encoder, sound_of
from spectrope.checkpoints.adapters.sparse import full_attention_up_to
from spectrope.core import SpectropeError, UnsupportedError

USUAL_TOKEN = 5
POOLS = frozenset({"funnel"})  # Whose blocks halve the sequence.
# What a model's own code may raise in a forward pass.
FAILURES = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    MemoryError,
    RuntimeError,
    TypeError,
    ValueError,
)


@dataclass(frozen=True)
class Inputs:
    """One token id at every position of a batch.

    Args:
        batch: Sequences.
        length: Positions of each.
    """

    batch: int
    length: int

    def of(self, model: nn.Module, mask: Tensor | None = None) -> dict[str, Any]:
        """Arguments for the model's forward call; `mask` is 1 at tokens and 0 at padding."""
        if is_sound_encoder(model):
            return dict(sound_of(model, self.batch, self.length))
        require_tokens(model)
        config: Any = model.config
        ids = torch.full((self.batch, self.length), ordinary_token(model), device=_device(model))
        inputs: dict[str, Any] = {"input_ids": ids, "attention_mask": mask}
        if config.is_encoder_decoder:
            inputs |= {"decoder_input_ids": ids, "decoder_attention_mask": mask}
        if "use_cache" in config.to_dict():
            inputs["use_cache"] = False
        return {name: value for name, value in inputs.items() if value is not None}


def ordinary_token(model: nn.Module) -> int:
    """A token that is neither padding nor begins or ends a text, if the vocabulary has one; 5 in most."""
    config: Any = model.config
    special: set[Any] = set()
    for one in (config, config.get_text_config()):
        for name in ("pad_token_id", "bos_token_id", "eos_token_id"):
            stated = getattr(one, name, None)
            special.update(stated if isinstance(stated, list | tuple) else (stated,))
    size = getattr(config.get_text_config(), "vocab_size", None) or USUAL_TOKEN + 1
    tokens = (*range(USUAL_TOKEN, size), *range(min(USUAL_TOKEN, size)))
    return next((token for token in tokens if token not in special), tokens[0])


def short_length(model: nn.Module) -> int:
    """Positions at which a model surely runs in the attention that it is set to, few of them.

    They are 4, or 4 in the last of blocks that pool, or one more than those that get full attention.
    """
    if (fixed := fixed_positions(model)) is not None:
        return fixed
    config: Any = model.config
    if getattr(config, "model_type", "") in POOLS:
        return 4 * 2 ** (config.num_blocks - 1)
    kept = any(getattr(part, "attention_type", "") == "block_sparse" for part in model.modules())
    return full_attention_up_to(model) + 1 if kept else 4


def require_tokens(model: nn.Module) -> None:
    """Refuse a model of images or sounds.

    Raises:
        UnsupportedError: If it is one.
    """
    taken = getattr(model, "main_input_name", "input_ids")
    if taken != "input_ids" and not _is_decoder_alone(model):
        parts = ", ".join(models_within(model))
        by_parts = f"`spectrope audit --part` takes its parts by themselves: {parts}"
        advice = by_parts if parts else "give a model of text"
        raise UnsupportedError(f"{_name(model)} takes no tokens but {taken}; {advice}.")


def _is_decoder_alone(model: Any) -> bool:
    """Whether only the decoder of a model of images or sounds is there, which takes tokens."""
    return hasattr(model, "decoder") and not hasattr(model, "encoder") and not model.config.is_encoder_decoder


def trained_length(model: nn.Module) -> int | None:
    """Positions that the configuration says the model takes; None if it says nothing.

    A table whose rows up to the padding's are no positions, as RoBERTa's, takes fewer tokens than it has
    rows.
    """
    if (fixed := fixed_positions(model)) is not None:
        return fixed
    config: Any = model.config
    text = config.get_text_config()
    names = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "max_target_positions")
    stated = (int(getattr(text, name, None) or 0) for name in names)
    positions = next((size for size in stated if size > 0), None)  # XLNet's -1 is no limit
    return None if positions is None else positions - _skipped(model, positions)


def _skipped(model: nn.Module, rows: int) -> int:
    """Rows of a table of so many before that of the first position, and after that of the last."""
    tables = (
        (getattr(module, "weight", None), getattr(module, "padding_idx", None))
        for name, module in model.named_modules()
        if "position" in name.rpartition(".")[2]
    )
    padded = (
        padding + 1
        for table, padding in tables
        if isinstance(table, Tensor) and isinstance(padding, int) and len(table) == rows
    )
    further = getattr(model.config, "model_type", "") == "prophetnet"  # Its predictions stand one further.
    return max(padded, default=0) + int(further)


@contextmanager
def runs_at(length: int, model: nn.Module) -> Iterator[None]:
    """Say why a model does not run, or cannot be measured, in one line.

    Raises:
        UnsupportedError: If what is run fails: because it is too long, because the model takes more than
            tokens, or because its form of attention is not supported.
    """
    try:
        yield
    except SpectropeError:
        raise
    except FAILURES as error:
        raise UnsupportedError(_why(model, length, error)) from error


def _why(model: nn.Module, length: int, error: Exception) -> str:
    """What keeps a model from being measured: length, inputs beside tokens, or the form of its attention."""
    limit, others = trained_length(model), " and ".join(_beside_text(model))
    if isinstance(error, MemoryError) or "allocate memory" in str(error):
        return f"{_name(model)} at length {length} needs more memory than there is; give a smaller length."
    if isinstance(error, IndexError | RuntimeError) and limit is not None and length > limit:
        return (
            f"{_name(model)} does not run at length {length}; its configuration gives it {limit} positions."
        )
    if is_sound_encoder(model):
        return f"{_name(model)} does not run on a constant sound of {length} positions: {first_line(error)}"
    if others:
        why = first_line(error).rstrip(".")
        return (
            f"{_name(model)} does not run on tokens alone ({why}), but takes {others} too; give its model of "
            "text."
        )
    if getattr(model.config, "model_type", "") in POOLS:
        return (
            f"{_name(model)} does not run at length {length}, as it pools its sequence between blocks of "
            "layers; give a larger length."
        )
    if getattr(model.config, "bi_data", False):
        return (
            f"{_name(model)} reads the second half of a batch backwards (bi_data), so it takes no single "
            "sequence, which an audit needs; set bi_data to false, as for fine-tuning."
        )
    if (own := _failure(model)) is not None:
        return f"{_name(model)} does not run on tokens alone: {first_line(own)}"
    if "index out of range in self" in str(error):  # What torch says of a table.
        return (
            f"{_name(model)} has a table of tokens or positions that is too small for its input; give token "
            "ids below the size of its vocabulary, a smaller length, or max_length of sp.OwnModel."
        )
    return f"{_name(model)} has attention of a form that is not supported yet: {first_line(error)}"


@torch.no_grad()
def _failure(model: nn.Module) -> Exception | None:
    """What a plain forward pass raises, if anything."""
    try:
        model(**Inputs(batch=2, length=8).of(model))
    except FAILURES as error:
        return error
    return None


def first_line(error: Exception) -> str:
    """Type and first line of an error of the library's."""
    lines = str(error).strip().splitlines()
    return ": ".join([type(error).__name__, *lines[:1]]).rstrip(".") + "."


def _name(model: nn.Module) -> str:
    return type(model).__name__


def _beside_text(model: nn.Module) -> list[str]:
    """What the model takes other than text, such as "image"."""
    taken = getattr(model, "input_modalities", "text")
    return [kind for kind in ((taken,) if isinstance(taken, str) else taken) if kind != "text"]


def _device(model: nn.Module) -> torch.device:
    return next(model.parameters()).device
