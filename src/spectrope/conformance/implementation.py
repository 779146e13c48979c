"""A function under test: how to load it, and which options it offers."""

import importlib
import inspect
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jaxtyping import Float, Int
from torch import Tensor

from spectrope.core import ConfigError, is_foreign, load_object, reason

OPTIONAL = ("base", "layout", "width", "scaling", "sections")
Apply = Callable[..., Any]


class NotOffered(Exception):  # noqa: N818 (an answer, not a fault)
    """The function does not offer an option that a cell needs."""


@dataclass(frozen=True)
class RotaryFunction:
    """A function `apply_rope(x, positions, ...)`.

    Args:
        name: How it was named.
        apply: The function.
        takes: Names of its optional arguments.
    """

    name: str
    apply: Apply
    takes: frozenset[str]

    @classmethod
    def of(cls, name: str, apply: Apply) -> "RotaryFunction":
        """Read from a function's signature what it takes.

        Raises:
            ConfigError: If it cannot be called with vectors and positions.
        """
        try:
            parameters = inspect.signature(apply).parameters.values()
        except (TypeError, ValueError):
            raise ConfigError(f"{name} has no signature that can be read; wrap it in a function.") from None
        placed = [one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
        needed = [
            one for one in parameters
            if one.default is one.empty and one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)
        ]  # fmt: skip
        spare = any(one.kind is one.VAR_POSITIONAL for one in parameters)
        if (len(placed) < 2 and not spare) or any(one.name not in OPTIONAL for one in needed[2:]):
            raise ConfigError(
                f"{name} must take (x, positions), and may take {', '.join(OPTIONAL)}; got "
                f"{inspect.signature(apply)}."
            )
        every = any(one.kind is one.VAR_KEYWORD for one in parameters)
        named = {one.name for one in parameters}
        return cls(name, apply, frozenset(OPTIONAL if every else named & set(OPTIONAL)))

    def __call__(
        self, x: Float[Tensor, "b h t d"], positions: Int[Tensor, "*axes t"], asked: dict[str, Any]
    ) -> Tensor:
        """Call the function with those of the requested arguments that it accepts.

        Raises:
            NotOffered: If it has no argument for something that is asked, or raises `NotImplementedError`.
        """
        if missing := asked.keys() - self.takes - {"base", "layout"}:
            raise NotOffered(f"no argument {min(missing)}")
        try:
            return self.apply(x, positions, **{key: asked[key] for key in asked.keys() & self.takes})
        except NotImplementedError as refused:
            raise NotOffered(str(refused)) from None


def load(spec: str) -> RotaryFunction:
    """The function that `module:function` or `path/to/file.py:function` names.

    Raises:
        ConfigError: If it cannot be imported, or is no such function.
    """
    found = load_object(spec, "function") if is_foreign(spec) else _imported(spec)
    if not callable(found):
        raise ConfigError(f"{spec} is not a function; got {type(found).__name__}.")
    return RotaryFunction.of(spec, found)


def _imported(spec: str) -> object:
    module, _, name = spec.partition(":")
    if not module or not name:
        raise ConfigError(f"a function is named as module:name or path/to/file.py:name; got {spec!r}.")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        loaded = importlib.import_module(module)
    except (Exception, SystemExit) as error:  # A user's module may raise anything while it is imported.
        raise ConfigError(f"{module} cannot be imported: {reason(error)}.") from None
    if not hasattr(loaded, name):
        raise ConfigError(f"{module} has no {name!r}.")
    return getattr(loaded, name)
