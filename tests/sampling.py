"""Tests of many cases of one kind: a seeded sample of them runs, unless all are asked for.

Such tests bear `@pytest.mark.sampled`, and those of one kind in several functions its name, as in
`@pytest.mark.sampled("kill")`. `pytest --whole` runs every case, as `make campaigns` does, and so does a
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
    for item in items:
        if mark := item.get_closest_marker("sampled"):
            cases[mark.args[0] if mark.args else item.nodeid.partition("[")[0]].append(item)
    out = set[pytest.Item]()
    for test, every in cases.items():
        kept = max(LEAST, math.ceil(SHARE * len(every)))
        drawn = random.Random(f"{seed} {test}").sample(range(len(every)), min(kept, len(every)))
        out |= {one for number, one in enumerate(every) if number not in drawn}
    return out
