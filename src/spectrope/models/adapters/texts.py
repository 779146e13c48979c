"""A checkpoint's tokenizer, and which of its tokens may be drawn at random."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import nn

from spectrope.core.errors import ConfigError, UnsupportedError
from spectrope.models.adapters.inputs import Inputs
from spectrope.models.adapters.record import Call, recorded

SPECIAL = ("bos_token_id", "eos_token_id", "pad_token_id")


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
        return Tokenizer(AutoTokenizer.from_pretrained(source, **options))
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{source} has no tokenizer that can be read: {str(error).splitlines()[0]}"
        ) from None


def drawable_tokens(model: nn.Module) -> Int[np.ndarray, " m"]:
    """Ids of a model's tokens without those that begin, end or pad."""
    config: Any = model.config
    text = config.get_text_config()
    named = (getattr(text, name, None) for name in SPECIAL)
    special = {int(i) for ids in named if ids is not None for i in np.atleast_1d(ids)}
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
    found = next((int(i) for name in names if (i := getattr(config, name, None)) is not None), None)
    if found is None:
        raise ConfigError(f"the configuration of {type(model).__name__} has no decoder_start_token_id.")
    return found


@torch.no_grad()
def sees_ahead(model: nn.Module) -> bool:
    """Whether some attention of a model sees keys behind the query.

    Raises:
        UnsupportedError: If no attention kernel could be observed.
    """
    calls: list[Call] = []
    with recorded(model, calls.append):
        model(**Inputs(batch=1, length=4).of(model))
    if not calls:
        raise UnsupportedError(f"{type(model).__name__} shows no attention kernel.")
    return any(bool(call.allowed.triu(1).any()) for call in calls)
