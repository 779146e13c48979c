"""Annotations as run-time checks by beartype, of arrays with the sizes of axes that jaxtyping binds.

jaxtyping checks each argument twice, before and after the call, and binds all of them for its messages. Here
beartype alone makes the same checks, each once; where arrays are annotated, the sizes of their axes are those
of one call, so that `Float[Tensor, "n m"]` and `Float[Tensor, " n"]` must agree on n.
"""

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any, get_args

import jaxtyping
from beartype import beartype
from jaxtyping._decorator import _destring_annotation
from jaxtyping._storage import pop_shape_memo, push_shape_memo

JAXTYPED = jaxtyping.jaxtyped


def checked(fn: Any = None, *, typechecker: Callable) -> Any:
    """`jaxtyping.jaxtyped` for functions and dataclasses; a generator is checked when it is made."""
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
    has_arrays = any(map(_has_arrays, meant.values()))
    if has_arrays and inspect.isgeneratorfunction(fn):
        return JAXTYPED(fn, typechecker=typechecker)
    fn.__annotations__ = meant
    wrapped = beartype(fn)
    fn.__annotations__ = wrapped.__annotations__ = written
    return _of_one_call(wrapped) if has_arrays else wrapped


def _of_one_call(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose arguments and results are checked against the same sizes of axes."""

    @functools.wraps(fn)
    def with_own_sizes(*args: Any, **kwargs: Any) -> Any:
        push_shape_memo({})
        try:
            return fn(*args, **kwargs)
        finally:
            pop_shape_memo()

    return with_own_sizes


def _has_arrays(hint: Any) -> bool:
    array = inspect.isclass(hint) and issubclass(hint, jaxtyping.AbstractArray)
    return array or any(map(_has_arrays, get_args(hint)))
