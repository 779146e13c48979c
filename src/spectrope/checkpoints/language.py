"""Data on which language models are scored: repeated random tokens, or texts."""

from collections.abc import Sequence
from pathlib import Path

import torch
from jaxtyping import Bool, Int
from torch import Tensor, nn

from spectrope.checkpoints.adapters import (
    Tokenizer,
    check_tokenizer,
    decoder_start,
    drawable_tokens,
    encoded,
    sees_ahead,
)
from spectrope.checkpoints.sequences import (
    UNSCORED,
    Sequences,
    continuing,
    padded,
    predicting,
    repeated_tokens,
)
from spectrope.core import ConfigError
from spectrope.store import disk_errors


def task_sequences(
    model: nn.Module, task: str, n: int, length: int, tokenizer: Tokenizer | None = None, seed: int = 0
) -> Sequences:
    """Repeating random tokens with their prediction targets. In encoder-decoder models, the encoder reads the
    first half, and the decoder predicts the second.

    Args:
        model: A Hugging Face model.
        task: "induction" or "distance"; see `repeated_tokens`.
        n: Sequences.
        length: Tokens of each.
        tokenizer: Knows how to hide a token, which is needed where the model sees both ways, and which tokens
            are special; these are not drawn.
        seed: Of the tokens.

    Raises:
        ConfigError: If there is no such task, or nothing to hide tokens with.
    """
    ids, wanted = repeated_tokens(drawable_tokens(model, tokenizer), n, length, task, seed)
    return _asking(model, tokenizer, ids, wanted, torch.full((n,), length), seed)


def text_sequences(
    model: nn.Module, texts: Sequence[str], length: int, tokenizer: Tokenizer, seed: int = 0
) -> Sequences:
    """Texts in which every token is predicted, or only masked ones, none of them special, if the model is
    bidirectional. In
    encoder-decoder models, the encoder reads the first half of each text, and the decoder predicts the
    second.

    Args:
        model: A Hugging Face model.
        texts: Those of fewer than two tokens are left out, and of special tokens alone.
        length: Most tokens of each.
        tokenizer: The model's.
        seed: Of the choice of hidden tokens.

    Raises:
        ConfigError: If the length is below 2, no text has two tokens, the tokenizer has tokens that the model
            does not know, or there is nothing to hide tokens with.
    """
    if length < 2:
        raise ConfigError(f"texts need a length of at least 2; got {length}.")
    special = {*tokenizer.special}
    rows = [row for row in encoded(model, tokenizer, texts, length) if len(row) > 1 and {*row} - special]
    if not rows:
        raise ConfigError("none of the texts has two tokens.")
    ids, lengths = padded(rows, tokenizer.padding)
    wanted = torch.arange(ids.shape[1]) < lengths[:, None]
    return _asking(model, tokenizer, ids, wanted, lengths, seed)


def token_sequences(
    model: nn.Module, ids: Int[Tensor, "n t"], tokenizer: Tokenizer | None = None, seed: int = 0
) -> Sequences:
    """Tokens without padding; every token is predicted, or only masked tokens if the model is bidirectional.

    Args:
        model: A Hugging Face model or an `OwnModel`.
        ids: Token ids.
        tokenizer: Knows how to hide a token; needed where the model sees both ways.
        seed: Of the choice of hidden tokens.

    Raises:
        ConfigError: If rows have fewer than two tokens, or there is nothing to hide tokens with.
    """
    if ids.shape[1] < 2:
        raise ConfigError(f"sequences must have at least two tokens; got {ids.shape[1]}.")
    wanted = torch.ones_like(ids, dtype=torch.bool)
    return _asking(model, tokenizer, ids, wanted, torch.full((len(ids),), ids.shape[1]), seed)


def whole_sequences(model: nn.Module, ids: Int[Tensor, "n t"]) -> Sequences:
    """Tokens for a model to run on; an encoder reads the first half of each row, a decoder the second.

    Args:
        model: A Hugging Face model.
        ids: Rows without padding.

    Raises:
        ConfigError: If a decoder is left without tokens.
    """
    start, lengths = decoder_start(model), torch.full((len(ids),), ids.shape[1])
    if start is None:
        return Sequences(ids, torch.full_like(ids, UNSCORED), lengths)
    return continuing(ids, torch.ones_like(ids, dtype=torch.bool), lengths, start)


def read_texts(path: Path) -> list[str]:
    """The lines of a file that are not empty.

    Raises:
        StoreError: If it cannot be read.
        ConfigError: If it holds no text.
    """
    with disk_errors(path, "read"):
        content = path.read_bytes()
    try:
        lines = content.decode("utf-8").splitlines()
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is no text in UTF-8.") from None
    texts = [line for line in lines if line.strip()]
    if not texts:
        raise ConfigError(f"{path} holds no text; one text is expected on each line.")
    return texts


def _asking(
    model: nn.Module,
    tokenizer: Tokenizer | None,
    ids: Int[Tensor, "n t"],
    wanted: Bool[Tensor, "n t"],
    lengths: Int[Tensor, " n"],
    seed: int,
) -> Sequences:
    """What a model is asked: the second half behind an encoder, else the next or hidden tokens."""
    start = decoder_start(model)
    if start is not None:
        return continuing(ids, wanted, lengths, start)
    mask = _mask(model, tokenizer)
    if mask is not None and tokenizer is not None:
        wanted = wanted & ~torch.isin(ids, torch.tensor(tokenizer.special, dtype=ids.dtype))
    return predicting(ids, wanted, lengths, mask, seed)


def _mask(model: nn.Module, tokenizer: Tokenizer | None) -> int | None:
    if not sees_ahead(model):
        return None
    if (hidden := getattr(model, "mask_token", None)) is not None:  # As an `OwnModel` says.
        return hidden
    if tokenizer is None or tokenizer.mask is None:
        raise ConfigError(
            f"{type(model).__name__} is bidirectional, so tokens must be masked; give a tokenizer with a "
            f"mask token, or mask_token of sp.OwnModel."
        )
    check_tokenizer(model, tokenizer)
    return tokenizer.mask
