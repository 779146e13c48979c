"""`spectrope ablate` on a checkpoint, as a user types it."""

import json

import pytest
import torch
from tests.checkpoints.adapters.tokenizers import save_tokenizer
from tests.checkpoints.audit.families import FAMILIES, llama

import spectrope as sp
from spectrope.checkpoints.ablation.calls import Controls
from spectrope.checkpoints.ablation.sweep import checkpoint_sweep
from spectrope.checkpoints.adapters import open_model, open_tokenizer
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


def asked_of(folder, examples, length):
    """What the command asks of a checkpoint with a tokenizer, whose special tokens are not drawn."""
    return task_sequences(open_model(folder), "induction", examples, length, open_tokenizer(folder))


def test_heads_are_listed_by_what_they_cost(checkpoints, capsys):
    folder = str(checkpoints / "llama-default")
    assert main(("ablate", folder, "--examples", "6", "--length", "16", "--batch", "2")) == 0
    out = capsys.readouterr().out
    assert "Loss and accuracy are means over sequences of each one's mean over its tokens" in " ".join(
        out.split()
    )
    data = asked_of(folder, 6, 16)
    found = checkpoint_sweep(open_model(folder), data)
    worst = max(found.costs(), key=lambda row: row.loss_increase)
    assert f"induction: loss {found.loss:.4g} nats per token" in out
    first = next(line.split() for line in out.splitlines() if line.split()[:1] in (["0"], ["1"]))
    assert first[:3] == [str(worst.layer), str(worst.head), f"{worst.loss_increase:.3g}"]


def test_intervals_without_a_width_are_said_to_show_nothing_of_other_sequences(checkpoints, capsys):
    folder = str(checkpoints / "llama-default")
    asked = ("ablate", folder, "--examples", "4", "--length", "8")
    flat = sum(cost.drop_low == cost.drop_high for cost in _costs(folder, 4, 8))
    assert flat > 0
    for method in ("exact", "screened", "adaptive"):
        assert main((*asked, *(() if method == "exact" else ("--method", method)))) == 0
        out = " ".join(capsys.readouterr().out.split())
        told = f"For {flat} of 8 heads the accuracy of all sequences changes alike, most often not at all"
        assert (told in out) == (method != "adaptive")


def test_an_accuracy_that_no_drop_can_exceed_is_named(checkpoints, capsys):
    assert main(("ablate", str(checkpoints / "llama-default"), "--examples", "16", "--length", "16")) == 0
    assert "No drop can exceed the accuracy, which is " in " ".join(capsys.readouterr().out.split())


def _costs(folder, examples, length):
    model = open_model(folder)
    return checkpoint_sweep(model, asked_of(folder, examples, length)).costs()


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


def test_heads_are_called_by_the_method_that_is_named(checkpoints, capsys):
    folder = str(checkpoints / "llama-default")
    asked = ("ablate", folder, "--examples", "6", "--length", "16", "--threshold", "3")
    assert main((*asked, "--method", "adaptive")) == 0
    out = " ".join(capsys.readouterr().out.split())
    found = checkpoint_sweep(open_model(folder), asked_of(folder, 6, 16))
    costly = sum(cost.drop > 3 for cost in found.costs())
    assert f"of 8 heads whose output is replaced (zero) one at a time, {costly} cost more than 3" in out
    assert f"accuracy {100 * found.accuracy:.1f} % and loss {found.loss:.3g} nats per token on 6 seq" in out
    assert "of up to 16 tokens (means over sequences of each one's mean over its tokens)." in out
    assert "100 % of the passes of an exact sweep were computed, with 95 % intervals for the drop over" in out
    assert "that hold for all heads at once and at any stopping time" in out
    assert main((*asked, "--method", "screened", "--fill", "mean", "--json")) == 0
    read = json.loads(capsys.readouterr().out)
    assert (read["method"], read["threshold"], read["fill"]) == ("screened", 3.0, "mean")
    assert (read["sequences"], read["sequences_used"], read["controls"]) == (6, 6, None)
    assert read["heads"][0].keys() == CALLED | {"first_order_effect"}


def test_what_screening_leaves_out_is_said(tmp_path, capsys):
    many = {"num_attention_heads": 32, "num_key_value_heads": 32, "hidden_size": 64, "num_hidden_layers": 3}
    llama(**many).save_pretrained(tmp_path)
    asked = ("ablate", str(tmp_path), "--examples", "4", "--length", "8", "--threshold", "50")
    assert main((*asked, "--method", "screened")) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "67 % of the passes of an exact sweep were computed, with a 95 % interval over sequences" in out
    assert (
        "32 of 96 heads, grey in figures, were not measured, because their first-order effects, which" in out
    )
    assert "Another 59 heads with small effects were drawn at random and measured: none costs more" in out
    most = Controls(59, 32, 1).most()
    assert f"With 95 % confidence, at most {most} of the 32 heads not measured do, on these sequen" in out
    assert "No change can cost more than 50 points, because the accuracy is not higher." in out
    assert main((*asked, "--method", "screened-adaptive", "--json")) == 0
    read = json.loads(capsys.readouterr().out)
    assert read["controls"] == {"n": 59, "left": 32, "draws": 1, "most": most}
    left = [row for row in read["heads"] if row["call"] == "not measured"]
    assert len(left) == 32
    assert all((row["drop"], row["n"]) == (None, 0) and row["first_order_effect"] >= 0 for row in left)


def test_heads_that_were_not_measured_are_grey(tmp_path):
    many = {"num_attention_heads": 32, "num_key_value_heads": 32, "hidden_size": 64, "num_hidden_layers": 3}
    found = sp.ablate(llama(**many).eval(), method="screened", threshold=50.0, examples=4, length=8)
    assert "If the intervals hold" not in repr(found)
    drawn = json.dumps(found.figure().spec)
    assert drawn.count("not measured: small first-order effect") == 1
    assert "<svg" in found.figure().save(tmp_path / "map.svg").read_text()


CALLED = {"role", "layer", "head", "fill", "call", "drop", "drop_low", "drop_high", "loss_increase", "n"}
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
