"""What a language model is scored on: repeated random tokens, or texts."""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn

from spectrope.core.errors import ConfigError
from spectrope.models.adapters import Tokenizer, drawable_tokens, sees_ahead
from spectrope.store.files import disk_errors
from spectrope.tasks.sequences import Sequences, padded, predicting, repeated_tokens


def task_sequences(
    model: nn.Module, task: str, n: int, length: int, tokenizer: Tokenizer | None = None, seed: int = 0
) -> Sequences:
    """Random tokens of a model that repeat, and what follows from it.

    Args:
        model: A Hugging Face model.
        task: "induction" or "distance"; see `repeated_tokens`.
        n: Sequences.
        length: Tokens of each.
        tokenizer: Knows how to hide a token; needed where the model sees both ways.
        seed: Of the tokens.

    Raises:
        ConfigError: If there is no such task, or nothing to hide tokens with.
    """
    ids, wanted = repeated_tokens(drawable_tokens(model), n, length, task, seed)
    return predicting(ids, wanted, torch.full((n,), length), _mask(model, tokenizer), seed)


def text_sequences(
    model: nn.Module, texts: Sequence[str], length: int, tokenizer: Tokenizer, seed: int = 0
) -> Sequences:
    """Texts, of which every token is to be predicted, or hidden ones where the model sees both ways.

    Args:
        model: A Hugging Face model.
        texts: Those of fewer than two tokens are left out.
        length: Most tokens of each.
        tokenizer: The model's.
        seed: Of the choice of hidden tokens.

    Raises:
        ConfigError: If no text has two tokens, or there is nothing to hide tokens with.
    """
    rows = [row for text in texts if len(row := tokenizer.encode(text, length)) > 1]
    if not rows:
        raise ConfigError("none of the texts has two tokens.")
    ids, lengths = padded(rows, tokenizer.padding)
    wanted = torch.arange(ids.shape[1]) < lengths[:, None]
    return predicting(ids, wanted, lengths, _mask(model, tokenizer), seed)


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


def _mask(model: nn.Module, tokenizer: Tokenizer | None) -> int | None:
    if not sees_ahead(model):
        return None
    if tokenizer is None or tokenizer.mask is None:
        raise ConfigError(
            f"{type(model).__name__} sees both ways, so tokens must be hidden from it, and its checkpoint "
            "has no tokenizer that knows how."
        )
    return tokenizer.mask
