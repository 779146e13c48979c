"""Whether arrays fit their annotations, decided by what an annotation was found to ask for once.

jaxtyping reads the name of an array's dtype and copies all sizes that are bound so far at each check, and
tests make hundreds of thousands of checks. Annotations beyond named, fixed, anonymous and variadic axes are
left to it.
"""

import re
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import AbstractArray, _array_types
from jaxtyping._storage import get_shape_memo

DTYPES = frozenset(one for one in vars(torch).values() if isinstance(one, torch.dtype))
Axis = str | int | None  # A name, a size, or neither.


@dataclass(frozen=True, slots=True)
class TensorCheck:
    """What an annotation of a tensor asks for.

    Args:
        kind: Class of the tensor.
        dtypes: Those that it may have.
        before: Axes before the variadic one, or all.
        variadic: Name of the variadic axis, "" if it has none, None if there is no such axis.
        behind: Axes behind the variadic one.
    """

    kind: type
    dtypes: frozenset[torch.dtype]
    before: tuple[Axis, ...]
    variadic: str | None
    behind: tuple[Axis, ...]

    def fits(self, x: Any) -> bool:
        """Whether a value has dtype and shape; if so, its sizes are bound to the names of its axes."""
        if not isinstance(x, self.kind) or x.dtype not in self.dtypes:
            return False
        shape, n, m = x.shape, len(self.before), len(self.behind)
        if len(shape) != n if self.variadic is None else len(shape) < n + m:
            return False
        bound, bound_variadic, *_ = get_shape_memo()
        new: dict[str, int] = {}
        sizes = (*shape[:n], *shape[len(shape) - m :])
        for axis, size in zip(self.before + self.behind, sizes, strict=True):
            if axis is None:
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


def tensor_check(annotation: Any) -> TensorCheck | None:
    """The check of an annotation; None where it is of other arrays, or of axes that jaxtyping alone knows."""
    if not (isinstance(annotation.array_type, type) and issubclass(annotation.array_type, torch.Tensor)):
        return None
    before, variadic, behind = [], None, []
    for axis in annotation.dims:
        part = before if variadic is None else behind
        if axis is _array_types._anonymous_dim:
            part.append(None)
        elif axis is _array_types._anonymous_variadic_dim:
            variadic = ""
        elif isinstance(axis, _array_types._FixedDim) and not axis.broadcastable:
            part.append(axis.size)
        elif isinstance(axis, _array_types._NamedDim) and not axis.broadcastable and not axis.treepath:
            part.append(axis.name)
        elif (
            isinstance(axis, _array_types._NamedVariadicDim) and not axis.broadcastable and not axis.treepath
        ):
            variadic = axis.name
        else:
            return None
    dtypes = frozenset(one for one in DTYPES if _is_allowed(one, annotation.dtypes))
    return TensorCheck(annotation.array_type, dtypes, tuple(before), variadic, tuple(behind))


def _is_allowed(dtype: torch.dtype, allowed: Any) -> bool:
    if allowed is _array_types._any_dtype:
        return True
    name = str(dtype).rpartition(".")[2]
    return any(one.match(name) if isinstance(one, re.Pattern) else one == name for one in allowed)


_CHECKS: dict[Any, TensorCheck | None] = {}


def _fits(annotation: Any, x: Any) -> bool:
    if annotation not in _CHECKS:
        _CHECKS[annotation] = tensor_check(annotation)
    check = _CHECKS[annotation]
    return annotation.__instancecheck_str__(x) == "" if check is None else check.fits(x)


def install() -> None:
    """Let annotations of tensors be checked so; of those that fail, jaxtyping still says why."""
    type(AbstractArray).__instancecheck__ = _fits
