"""Arrays fit their annotations exactly where jaxtyping says so, and bind the same sizes."""

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from jaxtyping import AbstractArray, Bool, Float, Float32, Int, Shaped
from jaxtyping._storage import get_shape_memo, pop_shape_memo, push_shape_memo
from tests.array_checks import array_check
from torch import Tensor

KINDS = (Float, Float32, Int, Bool, Shaped)
AXES = ("", "n", "n n", "n m", "2 n", "_ n", "... n", "*b n", "n *b m", "*b", "n ... 3", "*b n n")
AXES += ("#n", "#n m", "#n n", "#2 n", "n #n", "*b #n")
SHAPES = ((), (2,), (3,), (2, 2), (2, 3), (3, 3), (1, 2, 3), (2, 2, 3), (3, 2, 2, 3))
ARRAYS = [np.ones(shape, dtype) for shape in SHAPES for dtype in ("float32", "int64", "bool")]
VALUES = [torch.ones(shape, dtype=dtype) for shape in SHAPES for dtype in (torch.float32, torch.int64)]
OTHERS = [torch.ones(2, dtype=torch.bool), torch.ones(2, 3, dtype=torch.bfloat16), np.ones(2), None, "x"]


def said(annotation, values, fits):
    """Which of some values fit in turn within one call, and what is bound in the end."""
    push_shape_memo({})
    try:
        found = [fits(annotation, value) for value in values]
        single, variadic, *_ = get_shape_memo()
        return found, dict(single), dict(variadic)
    finally:
        pop_shape_memo()


def as_installed(annotation: Any, value: Any) -> bool:
    return isinstance(value, annotation)


@pytest.mark.parametrize("axes", AXES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("array", "values"), [(Tensor, VALUES), (np.ndarray, ARRAYS)])
def test_what_fits_and_what_is_bound_are_as_jaxtyping_has_them(array, values, kind, axes):
    annotation = kind[array, axes]
    assert array_check(annotation) is not None
    by_jaxtyping = lambda kind, x: kind.__instancecheck_str__(x) == ""  # noqa: E731
    pairs = [*itertools.product(values, values), *itertools.product(OTHERS, values)]
    for pair in pairs:
        assert said(annotation, pair, as_installed) == said(annotation, pair, by_jaxtyping)


@pytest.mark.parametrize("annotation", [Float[Tensor, "n n+1"], Float[Tensor, "#*b n"], Float[Any, " n"]])
def test_other_annotations_are_left_to_jaxtyping(annotation):
    assert array_check(annotation) is None


def test_annotations_are_checked_so_in_every_test():
    assert type(AbstractArray).__instancecheck__.__module__ == "tests.array_checks"
    cases = (
        (Float[Tensor, " n"], torch.ones(2), True),
        (Float[Tensor, " n"], torch.ones(2, 2), False),
        (Float[np.ndarray, " n"], np.ones(2), True),
    )
    for kind, value, fits in cases:
        annotation: Any = kind
        assert isinstance(value, annotation) == fits
