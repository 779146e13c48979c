"""Damages of JSON values and of bytes, in ways that Hypothesis chooses."""

import contextlib
import copy
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

WORDS = ["", "x", "nan", "1e999", "-1", "0", "rope", "\ud800", "\0", "a" * 5000, "../x", "<b>", "1" * 5000]
JUNK = [None, True, False, -1, 0, 1, 7, 0.5, 17.5, 1e308, math.inf, math.nan, 10**400, -(10**30), *WORDS]
JUNK += [[], {}, [[]], {"": {}}, [None] * 3, {"kind": "rope"}, {"kind": 7}, "[" * 3000]
HOW = ("set", "delete", "add", "wrap", "nest", "text")


@dataclass(frozen=True)
class Damage:
    """One damage.

    Args:
        at: Where, modulo the number of places.
        how: What is done there.
        junk: What is put there: a place in `JUNK`.
    """

    at: int
    how: str
    junk: int


DAMAGES = st.lists(
    st.builds(
        Damage,
        at=st.integers(0, 99_999),
        how=st.sampled_from(HOW),
        junk=st.integers(0, len(JUNK) - 1),
    ),
    min_size=1,
    max_size=3,
)


def damaged(value: Any, damages: list[Damage]) -> Any:
    """A JSON value with some of its parts changed."""
    root = {"": json.loads(json.dumps(value))}
    for one in damages:
        places = list(_places(root))
        holder, key = places[one.at % len(places)]
        junk = copy.deepcopy(JUNK[one.junk])  # A container that is damaged again must not hold itself.
        if one.how == "delete":
            del holder[key]
        elif one.how == "add" and isinstance(holder[key], dict):
            holder[key][f"more{one.junk}"] = junk
        elif one.how == "wrap":
            holder[key] = [holder[key]]
        elif one.how == "text":
            with contextlib.suppress(RecursionError):
                holder[key] = str(holder[key])
        elif one.how == "nest":
            for _ in range(2000):
                holder[key] = [holder[key]]
        else:
            holder[key] = junk
        if "" not in root:
            return None
    return root[""]


def _places(holder: Any) -> Iterator[tuple[Any, Any]]:
    """Every place of a JSON value, without recursion, which a deep one would exhaust."""
    waiting = [holder]
    while waiting:
        one = waiting.pop()
        keys = list(one) if isinstance(one, dict) else range(len(one))
        for key in keys:
            yield one, key
            if isinstance(one[key], dict | list):
                waiting.append(one[key])


def damaged_bytes(content: bytes, damages: list[Damage]) -> bytes:
    """Bytes with some of them changed."""
    for one in damages:
        at = one.at % max(1, len(content))
        rest = content[at + 1 :]
        if one.how == "delete":
            content = content[:at] + content[at + 1 + one.junk :]
        elif one.how == "wrap":
            content = content[:at]
        elif one.how == "text":
            content = content[:at] + content[:at] + rest
        elif one.how == "add":
            content = content[:at] + bytes([one.junk]) * 8 + content[at:]
        elif one.how == "nest":
            content = content[:at] + b"\xff" * 8 + content[at + 8 :]
        else:
            content = content[:at] + bytes([content[at] ^ (1 << one.junk % 8)] if content else b"x") + rest
    return content


def dumped(value: Any) -> bytes:
    """JSON as Python writes it, numbers that are none included; empty where it nests too deeply."""
    try:
        return json.dumps(value).encode("utf-8", "surrogatepass")
    except RecursionError:
        return b"[" * 100_000
