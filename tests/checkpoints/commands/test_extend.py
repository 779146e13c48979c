"""What `spectrope extend` prints, and what it refuses."""

import json
import random

import pytest
import torch
from tests.checkpoints.adapters.tokenizers import save_tokenizer
from transformers import LlamaConfig, LlamaForCausalLM

from spectrope.cli import BAD_INPUT, main

LENGTH = 16


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkpoint")
    torch.manual_seed(0)
    sizes = {"vocab_size": 64, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = LlamaConfig(**sizes, intermediate_size=16, max_position_embeddings=LENGTH)
    LlamaForCausalLM(config).eval().save_pretrained(folder)
    save_tokenizer(folder)
    return folder


@pytest.fixture
def book(tmp_path):
    words = random.Random(0).choices("abcdefgh", k=200)
    path = tmp_path / "book.txt"
    path.write_text(" ".join(words))
    return path


def test_without_texts_it_names_the_bands_of_each_layer(checkpoint, capsys):
    assert main(["extend", str(checkpoint), "--factor", "4"]) == 0
    out = capsys.readouterr().out
    assert "3 of 4 pairs complete less than one turn in 16 positions" in out
    assert "share of logits" in out
    assert "perplexity" not in out


def test_with_texts_it_scores_every_method(checkpoint, book, capsys):
    assert main(["extend", str(checkpoint), "--factor", "2", "--texts", str(book), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["method"] for row in found["scores"]] == ["window", "none", "linear", "ntk", "yarn", "drope"]
    assert all(row["low"] <= row["perplexity"] <= row["high"] for row in found["scores"])
    assert {row["layer"] for row in found["bands"]} == {0, 1}
    assert main(["extend", str(checkpoint), "--factor", "2", "--texts", str(book), "--methods", "yarn"]) == 0
    out = capsys.readouterr().out
    assert "window" in out
    assert "linear" not in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--factor", "1"], "factor must be above 1; got 1"),
        (["--length", "2"], "length must be at least 4; got 2"),
        (["--methods", "linear"], "--methods goes with --texts."),
        (["--factor", "64", "--texts", "{book}"], "texts must have at least 1024 tokens"),
        (["--texts", "{book}", "--methods", "yaml"], "unknown method 'yaml'; did you mean yarn"),
        (["--texts", "nowhere.txt"], "nowhere.txt"),
    ],
)
def test_what_it_refuses_is_one_line(checkpoint, book, capsys, arguments, message):
    words = [word.replace("{book}", str(book)) for word in arguments]
    assert main(["extend", str(checkpoint), *words]) == BAD_INPUT
    complaint = capsys.readouterr().err.strip()
    assert message in complaint
    assert len(complaint.splitlines()) == 1
