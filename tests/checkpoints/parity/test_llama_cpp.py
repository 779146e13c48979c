"""A llama.cpp server, which is not ours, on loopback."""

from pathlib import Path
from typing import Any

import pytest
from tests.checkpoints.parity.few import few_families
from tests.checkpoints.parity.induction import FOLDER, sequences
from tests.checkpoints.parity.llama_cpp import serving, write_gguf

from spectrope.checkpoints import open_model
from spectrope.checkpoints.parity import Endpoint, ModelRuntime, Parity, parity

FAMILIES = ("base", "window of", "sines and cosines")


@pytest.fixture(scope="module")
def local() -> Any:
    return open_model(FOLDER, dtype="float32")


@pytest.fixture(scope="module")
def converted(local: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gguf") / "model.gguf"
    write_gguf(local, path)
    return path


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch):
    few_families(monkeypatch, FAMILIES)


def compared(local: Any, url: str) -> Parity:
    return parity(ModelRuntime(local), Endpoint(url), sequences(4, 64, seed=8)[0], local, places=10)


def test_a_sound_server_gives_no_cause(local: Any, converted: Path):
    with serving(converted) as url:
        found = compared(local, url)
    assert found.answer in ("same", "precision")
    assert found.causes.cause is None
    assert found.divergence < 1e-4


def test_a_server_with_another_base_is_told_so(local: Any, converted: Path):
    with serving(converted, rope_freq_base=50000.0) as url:
        found = compared(local, url)
    named = found.causes.cause
    assert found.answer == "differs"
    assert named is not None
    assert named.codes == ("SPE101",)
    assert named.value == pytest.approx(50000, rel=0.02)
