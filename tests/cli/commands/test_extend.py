"""What `spectrope extend` prints, and what it refuses."""

import json
import random
from dataclasses import replace
from itertools import product

import pytest
import torch
from tests.checkpoints.adapters.tokenizers import save_tokenizer
from transformers import LlamaConfig, LlamaForCausalLM

from spectrope.cli import BAD_INPUT, main
from spectrope.lab.extrapolation.lengths import extrapolate
from spectrope.lab.job import train
from spectrope.lab.training.scales import experiment

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
    words = ["extend", str(checkpoint), "--factor", "2", "--texts", str(book), "--methods", "longrope"]
    assert main(words) == 0
    assert "longrope divides frequencies" in capsys.readouterr().out


def test_methods_that_do_not_apply_to_a_run_are_named(tmp_path, capsys):
    plan = experiment("distance", "nope", epochs=1, n_examples=60)
    run = train(plan, tmp_path, torch.device("cpu"))
    assert (
        main(["extend", str(run.path), "--factor", "2", "--methods", "none", "yarn", "--examples", "4"]) == 0
    )
    assert (
        f"not applied, since the positions of {run.id} have nothing to scale: yarn."
        in capsys.readouterr().err
    )


def test_of_a_run_it_scores_longer_sequences_under_every_method(tmp_path, capsys):
    whole = experiment("distance", "rope", epochs=1, n_examples=100)
    own = replace(whole, model=replace(whole.model, d_model=16, n_heads=2, n_layers=1, d_ff=16))
    run = train(own, tmp_path, torch.device("cpu"), precision="float32")
    methods = ["none", "drope", "interpolated"]
    words = ["extend", run.path.name, "--runs", str(tmp_path), "--factor", "2", "--methods", *methods]
    words += ["--examples", "30", "--device", "cpu"]
    assert main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["scores"]
    assert [(row["scaling"], row["factor"]) for row in found] == list(product(methods, (1.0, 2.0)))
    assert found == extrapolate(run, (1, 2), methods, examples=30).to_dicts()
    assert main(words) == 0
    assert "30 held-out examples of each length" in capsys.readouterr().out
    assert main([*words, "--texts", "book.txt"]) == BAD_INPUT
    assert "--texts is for checkpoints" in capsys.readouterr().err
    assert main([*words, "--methods", "yarm"]) == BAD_INPUT
    assert "unknown scaling 'yarm'; did you mean yarn" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--factor", "1"], "factor must be above 1; got 1"),
        (["--length", "2"], "length must be at least 4; got 2"),
        (["--methods", "linear"], "--methods goes with --texts."),
        (["--factor", "64", "--texts", "{book}"], "texts must have at least 1024 tokens"),
        (["--texts", "{book}", "--methods", "yaml"], "unknown method 'yaml'; did you mean yarn"),
        (["--texts", "nowhere.txt"], "nowhere.txt"),
        (["--examples", "9"], "--examples is for runs"),
    ],
)
def test_what_it_refuses_is_one_line(checkpoint, book, capsys, arguments, message):
    words = [word.replace("{book}", str(book)) for word in arguments]
    assert main(["extend", str(checkpoint), *words]) == BAD_INPUT
    complaint = capsys.readouterr().err.strip()
    assert message in complaint
    assert len(complaint.splitlines()) == 1
