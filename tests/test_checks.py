"""Run-time checks of annotations refuse what the annotations exclude, with arrays and without."""

from dataclasses import dataclass

import jaxtyping
import numpy as np
import pytest
import torch
from beartype import beartype
from beartype.roar import BeartypeCallHintViolation
from jaxtyping import Float
from tests.checks import JAXTYPED, checked
from torch import Tensor

from spectrope.stats.paired import net_loss_p
from spectrope.stats.rank import spearman


def check(fn):
    return checked(fn, typechecker=beartype)


def plain(n: int, names: "list[str] | None" = None) -> "str":
    return str(n) if names is None else names  # pyright: ignore[reportReturnType]


def shaped(x: Float[Tensor, "n m"], parts: "tuple[Float[Tensor, ' m'], ...]" = ()) -> Float[Tensor, " n"]:
    return x.sum(1 if x.shape[0] != 2 else 0)


@pytest.mark.parametrize("wrong", [("1",), (1, [2]), (1, ["returned"])])
def test_without_arrays_beartype_checks_arguments_and_results(wrong):
    plain_checked = check(plain)
    assert plain_checked(1) == "1"
    with pytest.raises(BeartypeCallHintViolation, match="violates type hint"):
        plain_checked(*wrong)


def test_with_arrays_shapes_are_checked_across_arguments_and_results():
    shaped_checked = check(shaped)
    assert shaped_checked(torch.ones(3, 2), (torch.ones(2),)).shape == (3,)
    for wrong in ((torch.ones(3),), (torch.ones(3, 2), (torch.ones(3),)), (torch.ones(2, 3),)):
        with pytest.raises(BeartypeCallHintViolation, match="violates type hint"):
            shaped_checked(*wrong)


def test_fields_of_dataclasses_are_checked():
    @check
    @dataclass
    class Plain:
        n: int

    @check
    @dataclass
    class Shaped:
        x: Float[Tensor, "n n"]

    with pytest.raises(BeartypeCallHintViolation, match="violates type hint"):
        Plain("1")  # pyright: ignore[reportArgumentType]
    with pytest.raises(BeartypeCallHintViolation, match="violates type hint"):
        Shaped(torch.ones(2, 3))


def test_annotations_stay_as_they_are_written():
    assert check(plain).__annotations__ == {"n": int, "names": "list[str] | None", "return": "str"}
    assert plain.__annotations__ == {"n": int, "names": "list[str] | None", "return": "str"}


def test_the_package_is_checked():
    assert jaxtyping.jaxtyped is checked is not JAXTYPED
    with pytest.raises(BeartypeCallHintViolation, match="violates type hint"):
        net_loss_p("1", 2, 3, 0.1)  # pyright: ignore[reportArgumentType]
    with pytest.raises(BeartypeCallHintViolation, match="violates type hint"):
        spearman(np.ones(3), np.ones(2))
