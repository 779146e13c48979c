"""Tests of many cases of one kind: a seeded sample of them runs, unless all are asked for.

Such tests bear `@pytest.mark.sampled`, and those of one kind in several functions its name, as in
`@pytest.mark.sampled("kill")`; `@pytest.mark.sampled(most=12)` draws no more than so many of costly ones.
`pytest --whole` runs every case, as `make campaigns` does, and so does a
selection by name.
"""

import math
import os
import random
from collections import defaultdict
from collections.abc import Iterable

import pytest

SHARE, LEAST = 0.25, 2
SEED = int(os.environ.get("SPECTROPE_SAMPLE", "0"))  # Another number draws other cases.


def is_whole(config: pytest.Config) -> bool:
    """Whether every case runs: where all are asked for, or some by name."""
    named = config.option.keyword or any("::" in one for one in config.args)
    return bool(config.getoption("whole") or named)


def left_out(items: Iterable[pytest.Item], seed: int = SEED) -> set[pytest.Item]:
    """Cases of sampled tests that are not drawn; each test or kind keeps a quarter, at least two."""
    cases = defaultdict[str, list[pytest.Item]](list)
    limits: dict[str, int] = {}
    for item in items:
        if mark := item.get_closest_marker("sampled"):
            kind = mark.args[0] if mark.args else item.nodeid.partition("[")[0]
            cases[kind].append(item)
            limits[kind] = mark.kwargs.get("most", len(cases[kind]))
    out = set[pytest.Item]()
    for test, every in cases.items():
        kept = min(limits[test], max(LEAST, math.ceil(SHARE * len(every))))
        drawn = random.Random(f"{seed} {test}").sample(range(len(every)), min(kept, len(every)))
        out |= {one for number, one in enumerate(every) if number not in drawn}
    return out
