"""Annotations as run-time checks by beartype, of arrays with the sizes of axes that jaxtyping binds.

jaxtyping checks each argument twice, before and after the call, and binds all of them for its messages. Here
beartype alone makes the same checks, each once; where arrays are annotated, the sizes of their axes are those
of one call, so that `Float[Tensor, "n m"]` and `Float[Tensor, " n"]` must agree on n. The checks of a
function that is defined inside another are compiled once, not each time the outer one runs.
"""

import dataclasses
import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from types import CellType, CodeType, FunctionType
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
    is_inner = "<locals>" in fn.__qualname__ and not fn.__defaults__ and not fn.__kwdefaults__
    if is_inner and not inspect.isgeneratorfunction(fn):
        return _compiled_once(fn)
    return _compiled(fn, typechecker)


def _compiled(fn: FunctionType, typechecker: Callable) -> Callable[..., Any]:
    written = fn.__annotations__
    meant = _meant(fn)
    has_arrays = any(map(_has_arrays, meant.values()))
    if has_arrays and inspect.isgeneratorfunction(fn):
        return JAXTYPED(fn, typechecker=typechecker)
    fn.__annotations__ = meant
    wrapped = beartype(fn)
    fn.__annotations__ = wrapped.__annotations__ = written
    return _of_one_call(wrapped) if has_arrays else wrapped


def _meant(fn: FunctionType) -> dict[str, Any]:
    """Annotations, also of those that are written as text."""
    return {name: _destring_annotation(hint, fn.__globals__) for name, hint in fn.__annotations__.items()}


@dataclass(frozen=True)
class _Compiled:
    """Checks of a function in which free variables are still empty.

    Args:
        empty: The function without its variables, so that none is kept alive.
        checked: The same by beartype.
        has_arrays: Whether arrays are annotated.
    """

    empty: Any
    checked: Any
    has_arrays: bool

    @classmethod
    def of(cls, fn: FunctionType) -> "_Compiled":
        cells = tuple(CellType() for _ in fn.__code__.co_freevars)
        empty = FunctionType(fn.__code__, fn.__globals__, fn.__name__, closure=cells)
        empty.__qualname__, empty.__module__ = fn.__qualname__, fn.__module__
        hints = {
            name: _destring_annotation(hint, fn.__globals__) for name, hint in fn.__annotations__.items()
        }
        empty.__annotations__ = hints
        wrapped = beartype(empty)
        empty.__annotations__ = fn.__annotations__
        return cls(empty, wrapped, any(map(_has_arrays, hints.values())))

    def fits(self, fn: FunctionType) -> bool:
        """Whether a function differs in its free variables alone."""
        same = self.empty.__globals__ is fn.__globals__ and self.empty.__qualname__ == fn.__qualname__
        return same and self.empty.__annotations__ == fn.__annotations__

    def around(self, fn: FunctionType) -> Callable[..., Any]:
        """A function with these checks; beartype's wrapper holds what it wraps as a default."""
        if self.checked is self.empty:
            return fn
        held = self.checked.__kwdefaults__ or {}
        wrapped = FunctionType(self.checked.__code__, self.checked.__globals__)
        wrapped.__kwdefaults__ = {name: fn if one is self.empty else one for name, one in held.items()}
        return functools.update_wrapper(wrapped, fn)


_INNER: dict[CodeType, _Compiled] = {}


def _compiled_once(fn: FunctionType) -> Callable[..., Any]:
    """The checks of a function inside another, whose defaults are none."""
    compiled = _INNER.get(fn.__code__)
    if compiled is None or not compiled.fits(fn):
        compiled = _INNER[fn.__code__] = _Compiled.of(fn)
    wrapped = compiled.around(fn)
    return _of_one_call(wrapped) if compiled.has_arrays else wrapped


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
