"""Annotations as run-time checks: of arrays by jaxtyping, of everything else by beartype alone.

jaxtyping binds the arguments of every call and generates two functions for each one that it decorates, also
where no array is annotated; there beartype alone makes the same checks, in a fraction of the time.
"""

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any, get_args

import jaxtyping
from beartype import beartype
from jaxtyping._decorator import _destring_annotation

JAXTYPED = jaxtyping.jaxtyped


def checked(fn: Any = None, *, typechecker: Callable) -> Any:
    """`jaxtyping.jaxtyped`, or beartype alone for functions and dataclasses without annotated arrays."""
    if fn is None:
        return functools.partial(checked, typechecker=typechecker)
    if inspect.isclass(fn) and dataclasses.is_dataclass(fn):
        if "__init__" in vars(fn):
            fn.__init__ = checked(fn.__init__, typechecker=typechecker)
        return fn
    if not inspect.isfunction(fn):
        return JAXTYPED(fn, typechecker=typechecker)
    written = fn.__annotations__
    meant = {name: _destring_annotation(hint, fn.__globals__) for name, hint in written.items()}
    if any(map(_has_arrays, meant.values())):
        return JAXTYPED(fn, typechecker=typechecker)
    fn.__annotations__ = meant
    wrapped = beartype(fn)
    fn.__annotations__ = wrapped.__annotations__ = written
    return wrapped


def _has_arrays(hint: Any) -> bool:
    array = inspect.isclass(hint) and issubclass(hint, jaxtyping.AbstractArray)
    return array or any(map(_has_arrays, get_args(hint)))
