"""`spectrope ablate` on a checkpoint, as a user types it."""

import json

import pytest
import torch
from tests.checkpoints.adapters.tokenizers import save_tokenizer
from tests.checkpoints.audit.families import FAMILIES, llama

from spectrope.checkpoints.ablation.sweep import checkpoint_sweep
from spectrope.checkpoints.adapters import open_model
from spectrope.checkpoints.language import task_sequences
from spectrope.cli import BAD_INPUT, main
from spectrope.console.terminal import console


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    root = tmp_path_factory.mktemp("checkpoints")
    for name in ("llama-default", "bert", "t5"):
        FAMILIES[name]().save_pretrained(root / name)
    for name in ("llama-default", "bert"):
        save_tokenizer(root / name)
    llama().save_pretrained(root / "mute")
    FAMILIES["gpt2"]().save_pretrained(root / "short")
    vast = llama()
    vast.lm_head.weight.data.fill_(3e38)
    vast.save_pretrained(root / "vast")
    (root / "empty").mkdir()
    return root


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    monkeypatch.setattr(console, "width", 200)


def test_heads_are_listed_by_what_they_cost(checkpoints, capsys):
    folder = str(checkpoints / "llama-default")
    assert main(("ablate", folder, "--examples", "6", "--length", "16", "--batch", "2")) == 0
    out = capsys.readouterr().out
    data = task_sequences(open_model(folder), "induction", 6, 16)
    found = checkpoint_sweep(open_model(folder), data)
    worst = max(found.costs(), key=lambda row: row.loss_increase)
    assert f"induction: loss {found.loss:.4g} nats per token" in out
    first = next(line.split() for line in out.splitlines() if line.split()[:1] in (["0"], ["1"]))
    assert first[:3] == [str(worst.layer), str(worst.head), f"{worst.loss_increase:.3g}"]


def test_json_is_the_whole_result(checkpoints, capsys):
    arguments = ("ablate", str(checkpoints / "bert"), "--task", "distance", "--fill", "mean", "--json")
    assert main((*arguments, "--examples", "4", "--length", "12", "--layers", "1")) == 0
    read = json.loads(capsys.readouterr().out)
    assert (read["on"], read["length"], read["fill"]) == ("distance", 12, "mean")
    assert [(row["layer"], row["head"]) for row in read["heads"]] == [(1, h) for h in range(4)]
    assert read["heads"][0].keys() == ROW


def test_heads_of_both_stacks_are_told_apart(checkpoints, capsys):
    arguments = ("ablate", str(checkpoints / "t5"), "--examples", "4", "--length", "13", "--layers", "1")
    assert main((*arguments, "--json")) == 0
    read = json.loads(capsys.readouterr().out)
    rows = [(row["role"], row["layer"], row["head"]) for row in read["heads"]]
    assert rows == [(role, 1, h) for role in ("encoder", "decoder", "cross") for h in range(4)]
    assert read["length"] == 13
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert "The encoder reads the first half, the decoder is asked for the second." in out
    assert "cross 1" in out


ROW = {"role", "layer", "head", "fill", "loss_increase", "loss_increase_low", "loss_increase_high"}
ROW |= {"drop", "drop_low", "drop_high", "n"}


def test_texts_of_a_file(checkpoints, tmp_path, capsys):
    texts = tmp_path / "texts.txt"
    texts.write_text("w5 w6 w7 w8\nw9 w10 w11\nw5 w7 w9\nw8 w8 w8\n")
    arguments = ("ablate", str(checkpoints / "llama-default"), "--texts", str(texts), "--examples", "4")
    assert main((*arguments, "--json")) == 0
    read = json.loads(capsys.readouterr().out)
    assert read["on"] == str(texts)
    assert read["heads"][0]["n"] == 4
    assert main(arguments) == 0
    assert "4 sequences of up to 4 tokens" in capsys.readouterr().out


def test_the_checkpoint_stays_as_it_is(checkpoints, capsys):
    folder = checkpoints / "llama-default"
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert main(("ablate", str(folder), "--examples", "4", "--length", "8")) == 0
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nobody/nothing",), "'nobody/nothing' is neither a run in runs"),
        (("{root}/empty",), "is no run"),
        (("{root}/mute", "--texts", "{root}/texts"), "--texts needs the checkpoint's tokenizer"),
        (
            ("{root}/mute", "--method", "screen"),
            "--method screen is for runs; a checkpoint takes exact",
        ),
        (
            ("{root}/mute", "--threshold", "9"),
            "--threshold goes with --method adaptive, screened or",
        ),
        (("{root}/mute", "--half-width", "1", "--method", "adaptive"), "--half-width is for runs; a checkp"),
        (
            ("{root}/mute", "--method", "screened", "--threshold", "100"),
            "above 0 and below 100 points; got",
        ),
        (("{root}/mute", "--protocol", "R9"), "--protocol is for runs"),
        (("{root}/mute", "--fill", "value-bias"), "filled with zero, mean, resample, position-only"),
        (("{root}/mute", "--task", "counting"), "must be one of induction, distance; got 'counting'"),
        (("{root}/mute", "--task", "distance", "--texts", "x"), "on either --task or --texts; got both"),
        (("{root}/mute", "--length", "7"), "need a length of at least 8; got 7"),
        (("{root}/short", "--length", "200"), "does not run at length 200; its configuration gives it 128"),
        (
            ("{root}/bert", "--texts", "{root}/bert/config.json", "--length", "-1"),
            "length must be at least 2; got -1",
        ),
        (
            ("{root}/vast", "--examples", "4", "--length", "8", "--json"),
            "returns no finite loss; take --dtype float32",
        ),
        (("{root}/mute", "--layers", "9:"), "layers must take at least one of 0 to 1"),
        (("{root}/mute", "--batch", "0"), "batch must be at least 1; got 0"),
        (("{root}/mute", "--examples", "2"), "examples must be at least 4; got 2"),
    ],
)
def test_a_mistake_gets_one_line(checkpoints, capsys, arguments, message):
    given = [argument.format(root=checkpoints) for argument in arguments]
    capsys.readouterr()
    assert main(("ablate", *given)) == BAD_INPUT
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("spectrope: ")]
    assert len(lines) == 1
    assert message in lines[0]


def test_pickled_weights_are_a_checkpoint_too(checkpoints, tmp_path, capsys):
    config = (checkpoints / "mute" / "config.json").read_bytes()
    (tmp_path / "config.json").write_bytes(config)
    torch.save({}, tmp_path / "pytorch_model.bin")
    assert main(("ablate", str(tmp_path))) == BAD_INPUT
    assert "only pickled weights" in capsys.readouterr().err
