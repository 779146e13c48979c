"""`spectrope spectrum` on a checkpoint, as a user types it."""

import polars as pl
import pytest
import torch
from tests.checkpoints.adapters.tokenizers import save_tokenizer
from tests.checkpoints.audit.families import FAMILIES, llama

from spectrope.cli import BAD_INPUT, main
from spectrope.console.terminal import console


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    root = tmp_path_factory.mktemp("checkpoints")
    FAMILIES["smollm3"]().save_pretrained(root / "deep")
    save_tokenizer(root / "deep")
    FAMILIES["t5"]().save_pretrained(root / "t5")
    FAMILIES["mistral"]().save_pretrained(root / "windowed")
    llama().save_pretrained(root / "mute")
    FAMILIES["gpt2"]().save_pretrained(root / "short")
    (root / "texts").write_text("w5 w6 w7 w8 w9\nw9 w10 w11\nw5 w7 w9 w9 w7\nw8 w8 w8 w9\n")
    return root


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    monkeypatch.setattr(console, "width", 200)


def test_tables_are_printed_and_kept(checkpoints, tmp_path, capsys):
    options = ("--examples", "6", "--length", "12", "--draws", "9", "--layers", "1:3", "--out", str(tmp_path))
    assert main(("spectrum", str(checkpoints / "deep"), *options)) == 0
    out = capsys.readouterr().out
    assert "6 sequences of 12 tokens; layers and heads count from 0." in out
    table = pl.read_parquet(tmp_path / "spectrum.parquet")
    assert table.select("layer", "head").rows() == [(i, h) for i in (1, 2) for h in range(4)]
    assert pl.read_parquet(tmp_path / "kernel.parquet")["lag"].unique().sort().to_list() == list(range(12))
    assert pl.read_parquet(tmp_path / "shares.parquet")["layer"].unique().sort().to_list() == [1, 2]


def test_what_rotation_does_is_shown_and_kept(checkpoints, tmp_path, capsys):
    options = ("--examples", "4", "--length", "12", "--draws", "9", "--batch", "3", "--out", str(tmp_path))
    assert main(("spectrum", str(checkpoints / "mute"), *options)) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in ("content", "contr.", "residual"))
    assert pl.read_parquet(tmp_path / "bands.parquet").select("layer", "head").unique().height == 8


def test_a_massive_coordinate_of_a_checkpoint_shows_in_its_head_and_its_band(tmp_path):
    model, coordinate = llama(), 5
    width = model.config.head_dim
    with torch.no_grad():
        model.model.layers[1].self_attn.q_proj.weight[2 * width + coordinate] *= 1000.0
    model.save_pretrained(tmp_path / "massive")
    options = ("--examples", "4", "--length", "12", "--draws", "3", "--out", str(tmp_path / "kept"))
    assert main(("spectrum", str(tmp_path / "massive"), *options)) == 0
    heads = pl.read_parquet(tmp_path / "kept" / "spectrum.parquet").sort("massive_queries", descending=True)
    assert heads.select("layer", "head").row(0) == (1, 2)
    assert width >= heads["massive_queries"][0] > 0.8 * width
    assert heads["massive_queries"][1] < width / 3
    bands = pl.read_parquet(tmp_path / "kept" / "bands.parquet").filter(layer=1, head=2)
    pair = coordinate % (width // 2)  # The halves of a Llama's head rotate together.
    largest = bands.sort("massive_queries", descending=True).row(0, named=True)
    assert (largest["band"], largest["massive_queries"]) == (pair, heads["massive_queries"][0])


def test_the_terms_of_logits_are_told_for_each_stack(checkpoints, tmp_path, capsys):
    options = ("--terms", "--examples", "6", "--length", "12", "--draws", "3", "--out", str(tmp_path))
    assert main(("spectrum", str(checkpoints / "mute"), *options)) == 0
    assert "design: random tokens" in capsys.readouterr().out
    table = pl.read_parquet(tmp_path / "terms.parquet")
    sums = table.group_by("layer", "head").agg((pl.col("share") + pl.col("covariance")).sum())
    assert sums["share"].to_list() == pytest.approx([1] * len(sums))
    assert pl.read_parquet(tmp_path / "position_factor.parquet")["real"].is_between(-2, 2).all()
    assert main(("spectrum", str(checkpoints / "t5"), *options)) == 0
    table = pl.read_parquet(tmp_path / "terms.parquet")
    assert set(table["role"]) == {"encoder", "decoder"}
    assert "bias" in set(table["term"])


def test_both_stacks_are_listed(checkpoints, capsys):
    options = ("--examples", "4", "--length", "12", "--draws", "9", "--layers", "0")
    assert main(("spectrum", str(checkpoints / "t5"), *options)) == 0
    out = capsys.readouterr().out
    assert "4 sequences of 6 tokens" in out
    assert "encoder" in out
    assert "decoder" in out


def test_texts_that_are_long_enough_are_measured(checkpoints, capsys):
    options = ("--texts", str(checkpoints / "texts"), "--draws", "9")
    assert main(("spectrum", str(checkpoints / "deep"), *options, "--length", "4")) == 0
    assert "3 sequences of 4 tokens" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "takes exactly one of a run, a checkpoint and --encoding NAME"),
        (("nobody/nothing",), "'nobody/nothing' is neither a run in runs"),
        (("{root}/short", "--length", "200"), "does not run at length 200; its configuration gives it 128"),
        (("{root}/mute", "--batch", "0"), "batch must be at least 1; got 0"),
        (("{root}/windowed",), "measure no more tokens than its window holds"),
        (("{root}/mute", "--layers", "7"), "layers must take at least one of 0 to 1"),
        (("{root}/mute", "--length", "1"), "length must be at least 2; got 1"),
        (("{root}/mute", "--draws", "0"), "draws must be at least 1; got 0"),
        (("{root}/mute", "--examples", "1"), "examples must be at least 2; got 1"),
        (("{root}/mute", "--texts", "{root}/texts"), "--texts needs the checkpoint's tokenizer"),
        (("{root}/deep", "--texts", "{root}/texts", "--length", "6"), "holds 0 texts of 6 tokens"),
    ],
)
def test_a_mistake_gets_one_line(checkpoints, capsys, arguments, message):
    given = [argument.format(root=checkpoints) for argument in arguments]
    capsys.readouterr()
    assert main(("spectrum", *given)) == BAD_INPUT
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("spectrope: ")]
    assert len(lines) == 1
    assert message in lines[0]
