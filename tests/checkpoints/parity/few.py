"""Few simulations, so that tests of parity stay cheap."""

from dataclasses import replace
from typing import Any

import pytest

from spectrope.checkpoints.parity import cause
from spectrope.checkpoints.parity.faults import Simulation, simulations


def few_families(monkeypatch: pytest.MonkeyPatch, families: tuple[str, ...]) -> None:
    """Simulate the faults whose names begin with one of these only, from fewer values, in whole models."""

    def some(*given: Any) -> list[Simulation]:
        chosen = (one for one in simulations(*given) if one.name.startswith(families))
        return [replace(one, values=one.values[::6]) for one in chosen]

    monkeypatch.setattr(cause, "simulations", some)
    monkeypatch.setattr(cause, "STARTS", 1)
    monkeypatch.setattr(cause, "_parts", lambda copy: [])
