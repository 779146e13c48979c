"""Whether arrays fit their annotations, decided by what an annotation was found to ask for once.

jaxtyping reads the name of an array's dtype and copies all sizes that are bound so far at each check, and
tests make hundreds of thousands of checks. Annotations beyond named, fixed, anonymous and variadic axes are
left to it.
"""

import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from jaxtyping import AbstractArray, _array_types
from jaxtyping._storage import get_shape_memo

Axis = tuple[str | int | None, bool]  # A name, a size, or neither; and whether size 1 fits whatever it is.


@dataclass(frozen=True, slots=True)
class ArrayCheck:
    """What an annotation of an array asks for.

    Args:
        kind: Class of the array.
        dtypes: Names and patterns of those that it may have, or any.
        before: Axes before the variadic one, or all.
        variadic: Name of the variadic axis, "" if it has none, None if there is no such axis.
        behind: Axes behind the variadic one.
        known: Which dtypes were allowed so far.
    """

    kind: type
    dtypes: Any
    before: tuple[Axis, ...]
    variadic: str | None
    behind: tuple[Axis, ...]
    known: dict[Any, bool] = field(default_factory=dict)

    def fits(self, x: Any) -> bool:
        """Whether a value has dtype and shape; if so, its sizes are bound to the names of its axes."""
        if not isinstance(x, self.kind) or not self._allows(x.dtype):
            return False
        shape, n, m = x.shape, len(self.before), len(self.behind)
        if len(shape) != n if self.variadic is None else len(shape) < n + m:
            return False
        bound, bound_variadic, *_ = get_shape_memo()
        new: dict[str, int] = {}
        sizes = (*shape[:n], *shape[len(shape) - m :])
        for (axis, is_loose), size in zip(self.before + self.behind, sizes, strict=True):
            if axis is None or (is_loose and size == 1):
                continue
            known = axis if isinstance(axis, int) else bound.get(axis, new.get(axis))
            if known is None:
                new[axis] = size
            elif known != size:
                return False
        if self.variadic:
            part = shape[n : len(shape) - m]
            if bound_variadic.setdefault(self.variadic, (False, part))[1] != part:
                return False
        bound.update(new)
        return True

    def _allows(self, dtype: torch.dtype | np.dtype) -> bool:
        found = self.known.get(dtype)
        if found is None:
            found = self.known[dtype] = _is_allowed(dtype, self.dtypes)
        return found


def array_check(annotation: Any) -> ArrayCheck | None:
    """The check of an annotation; None where it is of other arrays, or of axes that jaxtyping alone knows."""
    kind = annotation.array_type
    if not (isinstance(kind, type) and issubclass(kind, torch.Tensor | np.ndarray)):
        return None
    before, variadic, behind = [], None, []
    for axis in annotation.dims:
        part = before if variadic is None else behind
        if axis is _array_types._anonymous_dim:
            part.append((None, False))
        elif axis is _array_types._anonymous_variadic_dim:
            variadic = ""
        elif isinstance(axis, _array_types._FixedDim):
            part.append((axis.size, axis.broadcastable))
        elif isinstance(axis, _array_types._NamedDim) and not axis.treepath:
            part.append((axis.name, axis.broadcastable))
        elif (
            isinstance(axis, _array_types._NamedVariadicDim) and not axis.broadcastable and not axis.treepath
        ):
            variadic = axis.name
        else:
            return None
    return ArrayCheck(kind, annotation.dtypes, tuple(before), variadic, tuple(behind))


def _is_allowed(dtype: torch.dtype | np.dtype, allowed: Any) -> bool:
    if allowed is _array_types._any_dtype:
        return True
    name = dtype.type.__name__ if isinstance(dtype, np.dtype) else str(dtype).rpartition(".")[2]
    return any(one.match(name) if isinstance(one, re.Pattern) else one == name for one in allowed)


_CHECKS: dict[Any, ArrayCheck | None] = {}


def _fits(annotation: Any, x: Any) -> bool:
    if annotation not in _CHECKS:
        _CHECKS[annotation] = array_check(annotation)
    check = _CHECKS[annotation]
    return annotation.__instancecheck_str__(x) == "" if check is None else check.fits(x)


def install() -> None:
    """Let annotations be checked so; of those that fail, jaxtyping still says why."""
    type(AbstractArray).__instancecheck__ = _fits
