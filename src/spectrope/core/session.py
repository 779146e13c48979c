"""Digests of classes that are defined in a session: a prompt, a notebook or a script."""

import dataclasses
import enum
import hashlib
from collections.abc import Iterator
from functools import cache
from types import CodeType, FunctionType
from typing import Any

SESSION = ("__main__", "__mp_main__")  # The latter in a worker process.
PLAIN = (int, float, complex, str, bytes, type(None), type(...), enum.Enum)


@cache
def code_digest(member: Any) -> str:
    """Sixteen hexadecimal digits of the code of a class or a function.

    They depend on its instructions, constants and attributes, and on the functions, classes and plain values
    of its module that it uses by name; comments, line breaks and docstrings of classes do not matter.
    """
    text = "\n".join(_lines(member, set()))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _lines(value: Any, seen: set[int]) -> Iterator[str]:
    if isinstance(value, PLAIN):
        yield repr(value)
    elif isinstance(value, tuple | list):
        for one in value:
            yield from _lines(one, seen)
    elif isinstance(value, set | frozenset | dict):
        pairs = value.items() if isinstance(value, dict) else value
        yield from sorted(" ".join(_lines(one, seen)) for one in pairs)
    elif id(value) not in seen:
        seen.add(id(value))
        yield from _described(value, seen)


def _described(value: Any, seen: set[int]) -> Iterator[str]:
    if isinstance(value, type):
        yield value.__name__
        if value.__module__ in SESSION:
            yield from _of_class(value, seen)
    elif isinstance(value, FunctionType):
        yield value.__name__
        if value.__module__ in SESSION:
            yield from _of_function(value, seen)
    elif isinstance(value, staticmethod | classmethod):
        yield from _lines(value.__func__, seen)
    elif isinstance(value, property):
        yield from _lines([value.fget, value.fset], seen)
    elif isinstance(value, CodeType):
        yield from (value.co_code.hex(), *value.co_names, *value.co_varnames)
        yield from _lines(value.co_consts, seen)


def _of_class(member: type, seen: set[int]) -> Iterator[str]:
    yield from _lines(member.__bases__, seen)
    for field in dataclasses.fields(member) if dataclasses.is_dataclass(member) else ():
        yield field.name
        yield from _lines([field.default, field.default_factory], seen)
    for name, attribute in sorted(vars(member).items()):
        if not name.startswith("__") or isinstance(attribute, FunctionType):
            yield name
            yield from _lines(attribute, seen)


def _of_function(function: FunctionType, seen: set[int]) -> Iterator[str]:
    yield from _lines(function.__code__, seen)
    yield from _lines([function.__defaults__, function.__kwdefaults__], seen)
    for cell in function.__closure__ or ():
        yield from _lines(cell.cell_contents, seen)
    for name in sorted(_names(function.__code__)):
        yield from _lines(function.__globals__.get(name), seen)


def _names(code: CodeType) -> set[str]:
    """Names that a function looks up in its module, also inside functions within it."""
    inner = (_names(constant) for constant in code.co_consts if isinstance(constant, CodeType))
    return set(code.co_names).union(*inner)
