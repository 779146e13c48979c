"""Time that other processes do not lengthen."""

import time

import torch

from spectrope.fast.clock import own_seconds


def test_waiting_counts_only_where_several_threads_compute(monkeypatch):
    def wait() -> None:
        time.sleep(0.05)

    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    assert own_seconds(wait, torch.device("cpu")) < 0.04
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    assert own_seconds(wait, torch.device("cpu")) >= 0.05
