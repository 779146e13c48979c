"""Two runtimes of one model: where their predictions differ, and which fault would make them differ so."""

__all__ = ["Endpoint", "ModelRuntime", "Parity", "Runtime", "parity", "prompts_of"]

from .endpoint import Endpoint
from .run import Parity, parity, prompts_of
from .runtimes import ModelRuntime, Runtime
