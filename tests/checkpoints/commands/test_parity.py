"""The command parity: what it prints, and what it refuses."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.checkpoints.parity.induction import FOLDER
from transformers import Gemma2Config, Gemma2ForCausalLM

from spectrope.checkpoints.parity import cause
from spectrope.checkpoints.parity.sources import checkpoint_and_settings
from spectrope.cli import main

SMALL = ["--length", "32", "--prompts", "2", "--places", "6"]


@pytest.fixture(autouse=True)
def no_families(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cause, "simulations", lambda *given: [])


def test_two_settings_of_one_checkpoint(capsys: pytest.CaptureFixture[str]):
    assert main(["parity", str(FOLDER), f"{FOLDER}?attention=eager", *SMALL]) == 0
    assert "the same up to rounding" in capsys.readouterr().out


def test_precision_alone_ends_with_0_and_json_says_so(capsys: pytest.CaptureFixture[str]):
    assert main(["parity", str(FOLDER), f"{FOLDER}?dtype=bfloat16&cache=yes", *SMALL, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["answer"], found["cause"]) == ("precision", None)


def test_a_family_without_fused_attention_runs_as_it_is_loaded(tmp_path: Path, capsys: Any):
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "head_dim": 8}
    config = Gemma2Config(vocab_size=64, num_attention_heads=2, num_key_value_heads=1, **sizes)
    Gemma2ForCausalLM(config).save_pretrained(tmp_path)
    assert main(["parity", str(tmp_path), f"{tmp_path}?attention=eager", *SMALL]) == 0
    assert main(["parity", str(tmp_path), f"{tmp_path}?attention=sdpa", *SMALL]) in (0, 2)
    assert "Traceback" not in capsys.readouterr().err


def test_another_model_differs(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    from spectrope.checkpoints import open_model

    other: Any = open_model(FOLDER)
    other.model.norm.weight.data *= 2
    other.save_pretrained(tmp_path)
    assert main(["parity", str(FOLDER), str(tmp_path), *SMALL]) == 1
    assert "no simulated fault explains" in capsys.readouterr().out.replace("\n", " ")


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ([str(FOLDER), f"{FOLDER}?speed=fast"], "unknown setting 'speed'; known: dtype, attention, cache"),
        ([str(FOLDER), f"{FOLDER}?dtype=int8"], "dtype must be one of auto, float32"),
        ([str(FOLDER), str(FOLDER), "--prompts", "1"], "--prompts must be at least 2; got 1"),
        ([str(FOLDER), str(FOLDER), "--length", "8"], "--length must be at least 16; got 8"),
        ([str(FOLDER), "http://127.0.0.1:9/v1", *SMALL], "cannot be reached"),
        (["http://127.0.0.1:9/v1", "http://127.0.0.1:9/v1"], "give --local"),
        (["HTTP://127.0.0.1:9/v1", "http://127.0.0.1:9/v1"], "give --local"),
        ([str(FOLDER), str(FOLDER), "--local", "http://127.0.0.1:9/v1"], "--local must be a checkpoint"),
        ([str(FOLDER), str(FOLDER), "--local", f"{FOLDER}?dtype=float16"], "--local must be a checkpoint"),
        (["no/such/folder", str(FOLDER)], "no/such/folder"),
        ([str(FOLDER), str(FOLDER), "--model", "small"], "--model names the model of a server"),
        ([str(FOLDER), str(FOLDER), "--texts", "texts.txt", "--seed", "1"], "--seed is of random tokens"),
        ([str(FOLDER), str(FOLDER), "--texts", "texts.txt", *SMALL], "needs the checkpoint's tokenizer"),
    ],
)
def test_bad_input_is_one_line_with_code_2(
    arguments: list[str], what: str, capsys: pytest.CaptureFixture[str]
):
    assert main(["parity", *arguments]) == 2
    said = capsys.readouterr().err.strip()
    assert what in said
    assert len(said.splitlines()) == 1


def test_settings_stand_behind_the_name():
    name, settings = checkpoint_and_settings("folder/of/model?dtype=float16&attention=eager")
    assert (name, settings.dtype, settings.attention, settings.cache) == (
        "folder/of/model",
        "float16",
        "eager",
        "no",
    )
