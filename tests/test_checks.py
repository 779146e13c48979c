"""Run-time checks of annotations refuse what the annotations exclude, with arrays and without."""

import gc
import weakref
from dataclasses import dataclass
from typing import Any

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


def adding(n: int, kind: Any = int):
    """A function inside another, made anew at each call."""

    def add(m: kind, x: "Float[Tensor, ' a'] | None" = None) -> int:
        return n + m

    def shifted(x: Float[Tensor, " a"], y: Float[Tensor, " a"]) -> Float[Tensor, " a"]:
        return x + y + n

    def times(m: kind) -> int:
        return n * m

    return check(add), check(shifted), check(times)


def test_a_function_inside_another_is_checked_each_time_with_its_own_variables():
    for n in (1, 2, 3):
        add, shifted, times = adding(n)
        assert (add(4), times(4)) == (n + 4, n * 4)
        assert times.__name__ == "times"
        assert shifted(torch.zeros(2), torch.ones(2)).tolist() == [n + 1] * 2
        wrongs = [(add, "4"), (times, "4"), (times, 0.5), (shifted, torch.ones(2), torch.ones(3))]
        for inner, *wrong in wrongs:
            with pytest.raises(BeartypeCallHintViolation, match="violates type hint"):
                inner(*wrong)
    assert adding(1)[2](1) == 1
    with pytest.raises(BeartypeCallHintViolation, match=r"float 1\.0 not instance of int"):
        adding(0.5)[2](2)  # pyright: ignore[reportArgumentType]  # What the inner one returns.


def test_a_function_inside_another_is_checked_by_the_annotations_of_its_call():
    of_number, of_text = adding(2)[2], adding(2, str)[2]
    assert of_number(3) == 6
    for inner, wrong in ((of_number, "3"), (of_text, 3)):
        with pytest.raises(BeartypeCallHintViolation, match="violates type hint"):
            inner(wrong)


def test_checks_keep_no_variable_of_a_function_inside_another_alive():
    class Held:
        pass

    def made(held: Held):
        def inner(n: int) -> bool:
            return held is not None

        return check(inner)

    held = Held()
    gone = weakref.ref(held)
    assert made(held)(1)
    del held
    gc.collect()
    assert gone() is None


def test_annotations_stay_as_they_are_written():
    assert check(plain).__annotations__ == {"n": int, "names": "list[str] | None", "return": "str"}
    assert plain.__annotations__ == {"n": int, "names": "list[str] | None", "return": "str"}


def test_the_package_is_checked():
    assert jaxtyping.jaxtyped is checked is not JAXTYPED
    with pytest.raises(BeartypeCallHintViolation, match="violates type hint"):
        net_loss_p("1", 2, 3, 0.1)  # pyright: ignore[reportArgumentType]
    with pytest.raises(BeartypeCallHintViolation, match="violates type hint"):
        spearman(np.ones(3), np.ones(2))
