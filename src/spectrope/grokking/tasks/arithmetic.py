"""Arithmetic expressions in a and b, evaluated modulo an integer; nothing else in a text is ever executed."""

import ast
import math
from collections.abc import Mapping

import numpy as np
from jaxtyping import Bool, Int

from spectrope.core import ConfigError

OPERATIONS: Mapping[str, str] = {
    "add": "a + b",
    "sub": "a - b",
    "quadratic": "a**2 + a*b + b**2",
    "mul": "a * b",
    "div": "a / b",
}  # Names for the operations of the literature.
LONGEST = 200  # Characters of an expression.

Residues = Int[np.ndarray, " n"]
Defined = Bool[np.ndarray, " n"]


class Expression:
    r"""An expression built of a, b, whole numbers, +, -, \*, /, powers and brackets.

    Division is by the inverse modulo p, and undefined where there is none. Powers have whole exponents that
    are not negative and may be written `**` or `^`.

    Args:
        text: The expression, or a name in `OPERATIONS`.

    Raises:
        ConfigError: If the text is anything else.
    """

    def __init__(self, text: str) -> None:
        self.text = OPERATIONS.get(text, text).replace("^", "**")
        if len(self.text) > LONGEST:
            raise ConfigError(f"an operation has at most {LONGEST} characters; got {len(self.text)}.")
        try:
            self._tree = ast.parse(self.text.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise ConfigError(self._complaint("does not read as arithmetic")) from None
        self._check(self._tree)

    def __call__(self, a: Residues, b: Residues, p: int) -> tuple[Residues, Defined]:
        """Residues modulo p of the expression, and where it is defined; undefined entries are 0."""
        defined = np.ones(len(a), bool)
        values = self._value(self._tree, {"a": a % p, "b": b % p}, p, defined)
        return np.where(defined, values, 0), defined

    def _check(self, node: ast.expr) -> None:
        match node:
            case ast.Name(id="a" | "b"):
                return
            case ast.Constant(value=int(value)) if not isinstance(value, bool):
                return
            case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=operand):
                self._check(operand)
            case ast.BinOp(left=base, op=ast.Pow(), right=exponent) if _is_exponent(exponent):
                self._check(base)
            case ast.BinOp(left=left, op=ast.Add() | ast.Sub() | ast.Mult() | ast.Div(), right=right):
                self._check(left)
                self._check(right)
            case _:
                raise ConfigError(self._complaint(f"holds {ast.unparse(node)!r}"))

    def _complaint(self, fault: str) -> str:
        known = ", ".join(OPERATIONS)
        return (
            f"operation {self.text!r} {fault}; write arithmetic in a and b with whole numbers, such as "
            f"'a**2 + 3*b', or one of {known}."
        )

    def _value(self, node: ast.expr, known: Mapping[str, Residues], p: int, defined: Defined) -> Residues:
        match node:
            case ast.Name(id=name):
                return known[name]
            case ast.Constant(value=int(value)):
                return np.full_like(known["a"], value % p)
            case ast.UnaryOp(op=sign, operand=operand):
                value = self._value(operand, known, p, defined)
                return -value % p if isinstance(sign, ast.USub) else value
            case ast.BinOp(left=base, op=ast.Pow(), right=ast.Constant(value=int(power))):
                return _power(self._value(base, known, p, defined), power, p)
            case ast.BinOp(left=left, op=op, right=right):
                x, y = (self._value(side, known, p, defined) for side in (left, right))
                return _combined(op, x, y, p, defined)
        raise AssertionError("checked when the expression was read")


def _is_exponent(node: ast.expr) -> bool:
    """Whether a node is a whole number that is not negative; True is none."""
    return isinstance(node, ast.Constant) and type(node.value) is int and node.value >= 0


def _combined(op: ast.operator, x: Residues, y: Residues, p: int, defined: Defined) -> Residues:
    match op:
        case ast.Add():
            return (x + y) % p
        case ast.Sub():
            return (x - y) % p
        case ast.Mult():
            return x * y % p
    inverse = np.array([pow(r, -1, p) if math.gcd(r, p) == 1 else 0 for r in range(p)])
    defined &= inverse[y] > 0
    return x * inverse[y] % p


def _power(base: Residues, power: int, p: int) -> Residues:
    """Square and multiply: no product exceeds p squared."""
    result = np.full_like(base, 1 % p)
    while power:
        if power & 1:
            result = result * base % p
        base, power = base * base % p, power >> 1
    return result
