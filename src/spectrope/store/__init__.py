"""Run folders and rows on disk: the only place that touches disk for results."""

from spectrope.store.run import (
    RESULTS_VERSION,
    Run,
    check_place,
    find_runs,
    load_run,
    open_run,
    resolve_run,
    survey,
)

__all__ = [
    "RESULTS_VERSION",
    "Run",
    "check_place",
    "find_runs",
    "load_run",
    "open_run",
    "resolve_run",
    "survey",
]
