"""Options of engines: which one they describe, and which combinations they refuse."""

import os

import pytest

from spectrope.console.engine import EngineOptions, RayOptions
from spectrope.core.errors import ConfigError
from spectrope.lab import Local, Ray


def test_the_options_describe_an_engine():
    assert EngineOptions(device="cpu", workers=3).chosen_engine() == Local("cpu", 3)
    on_ray = EngineOptions(engine="ray", address="auto", gpus=0.5, workers=2)
    assert on_ray.chosen_engine() == Ray(address="auto", workers=2, gpus=0.5)
    assert on_ray.arguments() == {"device": "auto", "workers": 2, "engine": on_ray.chosen_engine()}
    assert EngineOptions(workers=2).arguments() == {"device": "auto", "workers": 2, "engine": None}
    assert RayOptions(engine="ray").computes_on == "cpu"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"engine": "ray", "device": "cpu"}, "--device is for --engine local; with --engine ray, use --gpus"),
        ({"gpus": 1.0}, "--gpus is for --engine ray"),
        ({"address": "auto"}, "--address is for --engine ray"),
        ({"start_seconds": 5.0}, "--start-seconds is for --engine ray"),
        ({"gpus": -1.0}, "gpus must be at least 0"),
    ],
)
def test_options_of_the_other_engine_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        RayOptions(**options).ray()


def test_as_many_runs_at_once_as_processors_that_may_be_used(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3}, raising=False)
    assert EngineOptions().n_workers == 1
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert EngineOptions().n_workers == 1
