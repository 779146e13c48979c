"""Commands write certificates that hold, and refuse those that would state nothing."""

import json

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from spectrope.cli import BAD_INPUT, main
from spectrope.core import ConfigError
from spectrope.encodings import ENCODINGS
from spectrope.lab import certified_kernel, encoding_kernels
from spectrope.store import Certified, weights_and_config, write_certificate


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A small Llama whose logits are small enough for polynomial attention."""
    torch.manual_seed(0)
    sizes = {"vocab_size": 32, "hidden_size": 32, "intermediate_size": 32, "max_position_embeddings": 32}
    config = LlamaConfig(**sizes, num_hidden_layers=2, num_attention_heads=2, initializer_range=0.02)
    folder = tmp_path_factory.mktemp("small")
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def verified(path, capsys, *options):
    capsys.readouterr()
    code = main(["verify", str(path), "--json", *map(str, options)])
    return code, json.loads(capsys.readouterr().out)


def test_of_an_audit(checkpoint, tmp_path, capsys):
    path = tmp_path / "deep" / "audit.json"
    assert main(["audit", str(checkpoint), "--length", "16", "--certificate", str(path)]) == 0
    code, told = verified(path, capsys, "--inputs", checkpoint)
    assert code == 0
    assert told["inputs"] == ["config.json", "model.safetensors"]
    (tmp_path / "config.json").write_text("{}")
    code, told = verified(path, capsys, "--inputs", tmp_path)
    assert code == 1
    assert told["refused"].startswith("inputs[0].sha256: is not that of")


def test_inputs_are_all_that_determines_what_a_checkpoint_computes(tmp_path):
    names = [
        "config.json",
        "modeling.py",
        "pytorch_model.bin",
        "pytorch_model.bin.index.json",
        "tokenizer.json",
    ]
    (tmp_path / "training_args.bin").touch()
    for name in names:
        (tmp_path / name).touch()
    assert sorted(path.name for path in weights_and_config(tmp_path)) == names[:-1]


def test_of_a_plan(checkpoint, tmp_path, capsys):
    path = tmp_path / "plan.json"
    asked = [
        "attention",
        "plan",
        str(checkpoint),
        "--length",
        "65536",
        "--examples",
        "2",
        "--certificate",
        str(path),
    ]
    assert main(asked) == 0
    code, told = verified(path, capsys, "--inputs", checkpoint)
    assert code == 0
    assert "attention of 4 heads is within" in told["proved"][0]
    assert main([*asked[:3], "--length", "64", *asked[5:]]) == BAD_INPUT
    assert "every head is planned as exact, so there is nothing to certify" in capsys.readouterr().err


def test_of_an_encoding(tmp_path, capsys):
    asked = [
        "spectrum",
        "--encoding",
        "alibi",
        "--length",
        "48",
        "--n-heads",
        "2",
        "--certificates",
        str(tmp_path),
    ]
    assert main(asked) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bias-0.json", "bias-1.json"]
    code, told = verified(tmp_path / "bias-1.json", capsys)
    assert code == 0
    assert "the smallest eigenvalue of the 48 x 48 matrix" in told["proved"][0]


def test_of_too_many_positions():
    kernels = encoding_kernels(ENCODINGS["alibi"](ENCODINGS["alibi"].Config()), 2049, 2, 16, True)
    with pytest.raises(
        ConfigError, match="certificates of eigenvalues are written up to 2048 positions; got 2049"
    ):
        certified_kernel(kernels[0])


def test_of_numbers_that_are_not_finite(tmp_path):
    with pytest.raises(ConfigError, match="no certificate of x was written: a number of it is not finite"):
        write_certificate(tmp_path / "cert.json", Certified("audit", {"noise": float("nan")}, []), "x")
