"""Memory that is left, within the limits of control groups."""

from types import SimpleNamespace

import psutil
import pytest
import torch

from spectrope.core.available import available_memory

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def system(monkeypatch):
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=8000))


def write(folder, **files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)


def groups(root, text):
    write(root / "proc/self", cgroup=text)


def test_without_limits_it_is_what_the_system_has(tmp_path):
    assert available_memory(CPU, tmp_path) == 8000
    groups(tmp_path, "0::/\n")
    write(tmp_path / "sys/fs/cgroup", memory__max="max\n", memory__current="1\n", memory__stat="")
    assert available_memory(CPU, tmp_path) == 8000


def test_a_container_limits_it_and_its_file_cache_can_be_dropped(tmp_path):
    groups(tmp_path, "0::/\n")
    stat = "anon 100\ninactive_file 300\n"
    write(tmp_path / "sys/fs/cgroup", memory__max="5000\n", memory__current="2000\n", memory__stat=stat)
    assert available_memory(CPU, tmp_path) == 3300


def test_the_limits_of_the_groups_around_it_hold_too(tmp_path):
    groups(tmp_path, "0::/job/step\n")
    top = tmp_path / "sys/fs/cgroup"
    write(top / "job/step", memory__max="5000\n", memory__current="2000\n", memory__stat="")
    write(top / "job", memory__max="6000\n", memory__current="5500\n", memory__stat="")
    assert available_memory(CPU, tmp_path) == 500


def test_the_first_version_of_control_groups_is_read_as_well(tmp_path):
    groups(tmp_path, "5:cpu:/\n4:memory:/job\n")
    files = {"memory__limit_in_bytes": "4000\n", "memory__usage_in_bytes": "3900\n"}
    write(tmp_path / "sys/fs/cgroup/memory/job", memory__stat="total_inactive_file 50\n", **files)
    assert available_memory(CPU, tmp_path) == 150


def test_on_cuda_it_is_free_memory_and_the_allocator_s_reserve(monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (100, 1000))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 70)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 20)
    assert available_memory(torch.device("cuda")) == 150
