"""Classes of a session are identified by what they do."""

import subprocess
import sys

import pytest

from spectrope.core.session import code_digest

SOURCE = '''
import dataclasses
from dataclasses import dataclass, field

RATE = 0.5
def scaled(x):
    return x * RATE

class Base:
    def offset(self):
        return 1

class Mine(Base):
    """What it is for."""
    laws = frozenset({"a", "b"})
    @dataclass(frozen=True)
    class Config:
        size: int = 4
        parts: tuple = field(default_factory=lambda: (1, 2))
    @staticmethod
    def inner(x):
        return [scaled(one) for one in x]
    @property
    def width(self):
        return 3
    def run(self, x, y=1):
        # It adds.
        return self.inner(x) + [super().offset() + y]
'''


def digest(source: str) -> str:
    names = {"__name__": "__main__"}
    exec(compile(source, "<cell>", "exec"), names)
    return code_digest(names["Mine"])


def test_the_same_code_has_the_same_digest_whatever_is_said_of_it():
    said_otherwise = SOURCE.replace("# It adds.", "# Both.\n\n").replace("What it is for", "A class")
    assert digest(SOURCE) == digest(said_otherwise)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("x * RATE", "x + RATE"),
        ("RATE = 0.5", "RATE = 0.6"),
        ("return 1", "return 2"),
        ('"b"}', '"c"}'),
        ("size: int = 4", "size: int = 5"),
        ("(1, 2)", "(1, 3)"),
        ("scaled(one)", "scaled(2 * one)"),
        ("return 3", "return 4"),
        ("y=1", "y=2"),
        ("class Mine(Base)", "class Mine"),
    ],
)
def test_whatever_it_does_otherwise_counts(one, other):
    assert SOURCE.count(one) == 1
    assert digest(SOURCE.replace(one, other)) != digest(SOURCE)


def test_it_is_the_same_in_another_process():
    code = SOURCE + "from spectrope.core.session import code_digest\nprint(code_digest(Mine))"
    printed = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    ]
    assert printed == [f"{digest(SOURCE)}\n"] * 2
