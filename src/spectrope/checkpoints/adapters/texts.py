"""A checkpoint's tokenizer, and which of its tokens may be drawn at random."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import nn

from spectrope.checkpoints.adapters.call import Call
from spectrope.checkpoints.adapters.inputs import Inputs, require_tokens
from spectrope.checkpoints.adapters.record import recorded
from spectrope.core import ConfigError, UnsupportedError

SPECIAL = ("bos_token_id", "eos_token_id", "pad_token_id")
FILES = ("tokenizer.json", "*.model", "vocab*", "*.spm", "*.tiktoken", "tekken.json", "bpe.codes")


@dataclass(frozen=True)
class Tokenizer:
    """What of a checkpoint's tokenizer is used.

    Args:
        library: The tokenizer as the library loads it.
    """

    library: Any

    def encode(self, text: str, length: int) -> list[int]:
        """The first tokens of a text, at most so many."""
        return list(self.library(text, truncation=True, max_length=length)["input_ids"])

    @property
    def padding(self) -> int:
        """Id to pad with; what it is does not matter, as it is masked."""
        return self.library.pad_token_id or 0

    def ids_by_text(self) -> dict[str, int]:
        """Ids of tokens by what they read as, without texts that several tokens share."""
        ids = sorted(set(self.library.get_vocab().values()))
        texts = [self.library.decode([token]) for token in ids]
        shared = {text for text, count in Counter(texts).items() if count > 1}
        return {text: token for text, token in zip(texts, ids, strict=True) if text not in shared}

    @property
    def special(self) -> list[int]:
        """Ids of tokens that no text holds by itself, such as [CLS], [SEP], [UNK] and [MASK]."""
        return list(self.library.all_special_ids)

    @property
    def mask(self) -> int | None:
        """Id that hides a token, if the model was trained with one."""
        return self.library.mask_token_id


def open_tokenizer(
    source: str, *, allow_download: bool = False, trust_remote_code: bool = False
) -> Tokenizer:
    """The tokenizer of a checkpoint.

    Args:
        source: Folder, or id of a model in the local cache.
        allow_download: Whether it may be fetched from the hub.
        trust_remote_code: Whether code that comes with it may run.

    Raises:
        ConfigError: If there is none that can be read.
    """
    from transformers import AutoTokenizer

    options = {"local_files_only": not allow_download, "trust_remote_code": trust_remote_code}
    try:
        tokenizer = AutoTokenizer.from_pretrained(source, **options)
    except Exception as error:  # what its files, or the lack of them, raise in the library is of any kind
        raise ConfigError(f"{source} has no tokenizer that can be read: {_reason(error)}") from None
    if not _has_files(source, tokenizer, allow_download):
        raise ConfigError(f"{source} has no tokenizer that can be read: no file of it.")
    return Tokenizer(tokenizer)


def _reason(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), "") or type(error).__name__


def _has_files(source: str, tokenizer: Any, allow_download: bool) -> bool:
    """Whether a tokenizer was read, not made up: from files, unless it is of a kind that needs none."""
    from transformers.utils.hub import cached_file

    named = set(getattr(tokenizer, "vocab_files_names", {}).values())
    if not named:  # as those of bytes and characters
        return True
    options = {"local_files_only": not allow_download, "_raise_exceptions_for_missing_entries": False}
    where = cached_file(source, "config.json", **options)
    folder = Path(where).parent if where else Path(source)
    return any((folder / name).is_file() for name in named) or any(
        any(folder.glob(pattern)) for pattern in FILES
    )


def encoded(model: nn.Module, tokenizer: Tokenizer, texts: Iterable[str], length: int) -> list[list[int]]:
    """The first tokens of each text, for a model.

    Args:
        model: Whose tokens they are to be.
        tokenizer: The model's.
        texts: In their order.
        length: Most tokens of each.

    Raises:
        ConfigError: If the tokenizer has tokens that the model does not know.
    """
    check_tokenizer(model, tokenizer)
    rows = [tokenizer.encode(text, length) for text in texts]
    _check_known(model, max((max(row) for row in rows if row), default=0))
    return rows


def check_tokenizer(model: nn.Module, tokenizer: Tokenizer) -> None:
    """Refuse a tokenizer of more tokens than a model has; those added to it may remain unused.

    Raises:
        ConfigError: If it has more.
    """
    _check_known(model, max(tokenizer.library.vocab_size - 1, tokenizer.mask or 0))


def _check_known(model: nn.Module, largest: int) -> None:
    config: Any = model.config
    known = config.get_text_config().vocab_size
    if largest >= known:
        raise ConfigError(
            f"the checkpoint's tokenizer gives tokens up to {largest}, and {type(model).__name__} knows "
            f"{known}; put the model's own tokenizer in its folder."
        )


def drawable_tokens(model: nn.Module, tokenizer: Tokenizer | None = None) -> Int[np.ndarray, " m"]:
    """Ids of a model's tokens without those that begin, end or pad.

    Args:
        model: A Hugging Face model.
        tokenizer: The model's, whose special tokens are left out, too.

    Raises:
        UnsupportedError: If it takes no tokens.
    """
    require_tokens(model)
    config: Any = model.config
    text = config.get_text_config()
    named = (getattr(text, name, None) for name in SPECIAL)
    special = {int(i) for ids in named if ids is not None for i in np.atleast_1d(ids)}
    special |= set() if tokenizer is None else {*tokenizer.special}
    return np.array([i for i in range(text.vocab_size) if i not in special])


def decoder_start(model: nn.Module) -> int | None:
    """Id that a decoder behind an encoder starts with; None where there is one stack.

    Raises:
        ConfigError: If the configuration of such a model names none.
    """
    config: Any = model.config
    if not config.is_encoder_decoder:
        return None
    names = ("decoder_start_token_id", "bos_token_id", "pad_token_id")
    start = next((int(i) for name in names if (i := getattr(config, name, None)) is not None), None)
    if start is None:
        raise ConfigError(f"the configuration of {type(model).__name__} has no decoder_start_token_id.")
    return start


@torch.no_grad()
def sees_ahead(model: nn.Module) -> bool:
    """Whether any attention layer of a model attends to keys after the query.

    Raises:
        UnsupportedError: If no attention kernel could be observed.
    """
    calls: list[Call] = []
    with recorded(model, calls.append):
        model(**Inputs(batch=1, length=4).of(model))
    if not calls:
        raise UnsupportedError(f"{type(model).__name__} shows no attention kernel.")
    return any(bool(call.allowed.triu(1).any()) for call in calls)
