"""The Hugging Face Hub, which nothing here asks unless a user does."""

import contextlib
import importlib
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def without_hub() -> Iterator[None]:
    """While the block runs, clients of the Hugging Face Hub neither ask it nor send it a token."""
    constants: Any = importlib.import_module("huggingface_hub.constants")
    before, constants.HF_HUB_OFFLINE = constants.HF_HUB_OFFLINE, True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before
