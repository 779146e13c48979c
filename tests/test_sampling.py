"""Sampled tests keep a quarter of their cases, the same ones for the same seed."""

from dataclasses import dataclass
from types import SimpleNamespace

import pytest
from tests.sampling import is_whole, left_out


@dataclass(frozen=True)
class Item:
    nodeid: str
    sampled: bool
    kind: str = ""
    most: int | None = None

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        args = [self.kind] if self.kind else []
        limit = {} if self.most is None else {"most": self.most}
        return pytest.mark.sampled(*args, **limit).mark if self.sampled and name == "sampled" else None


def items(n: int, test: str = "tests/test_a.py::test_b", *, sampled: bool = True) -> list[Item]:
    return [Item(f"{test}[{case}]", sampled) for case in range(n)]


def kept(every: list[Item], seed: int = 0) -> list[Item]:
    out = left_out(every, seed)
    return [one for one in every if one not in out]


@pytest.mark.parametrize(("n", "wanted"), [(1, 1), (2, 2), (5, 2), (8, 2), (9, 3), (100, 25)])
def test_a_quarter_of_the_cases_is_kept_and_at_least_two(n, wanted):
    assert len(kept(items(n))) == wanted


@pytest.mark.parametrize(("most", "wanted"), [(12, 12), (30, 25)])
def test_no_more_than_a_limit_are_kept(most, wanted):
    assert (
        len(kept([Item(f"tests/test_a.py::test_b[{case}]", sampled=True, most=most) for case in range(100)]))
        == wanted
    )


def test_tests_of_one_kind_are_drawn_together():
    tests = [Item(f"tests/test_a.py::test_{n}", sampled=True, kind="kill") for n in range(9)]
    assert len(kept(tests)) == 3


def test_every_case_of_other_tests_is_kept():
    assert len(kept([*items(8), *items(9, "tests/test_c.py::test_d", sampled=False)])) == 2 + 9


def test_a_seed_draws_the_same_cases_and_another_seed_others():
    assert kept(items(100)) == kept(items(100))
    assert kept(items(100)) != kept(items(100), seed=1)
    assert {one.nodeid for seed in range(40) for one in kept(items(20), seed)} == {
        one.nodeid for one in items(20)
    }


@pytest.mark.parametrize(
    ("whole", "keyword", "args", "wanted"),
    [
        (True, "", ["tests"], True),
        (False, "llama", ["tests"], True),
        (False, "", ["tests/test_a.py::test_b[3]"], True),
        (False, "", ["tests"], False),
    ],
)
def test_all_cases_run_where_they_are_asked_for(whole, keyword, args, wanted):
    config = SimpleNamespace(
        getoption={"whole": whole}.get, option=SimpleNamespace(keyword=keyword), args=args
    )
    assert is_whole(config) == wanted
