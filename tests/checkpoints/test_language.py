"""What language models are scored on, from their own vocabulary and tokenizer."""

import pytest
import torch
import transformers
from tests.checkpoints.adapters.tokenizers import save_tokenizer
from tests.checkpoints.audit.families import FAMILIES, SIZES, build

from spectrope.checkpoints.adapters import drawable_tokens, open_tokenizer, sees_ahead
from spectrope.checkpoints.language import read_texts, task_sequences, text_sequences, token_sequences
from spectrope.core.errors import ConfigError, StoreError, UnsupportedError


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    FAMILIES["llama-default"]().config.save_pretrained(folder)
    save_tokenizer(folder)
    return open_tokenizer(str(folder))


def test_tokens_that_mean_something_else_are_not_drawn():
    assert drawable_tokens(FAMILIES["llama-default"]()).tolist() == list(range(3, 64))
    model = FAMILIES["gpt2"]()
    model.config.eos_token_id = [2, 7]
    assert drawable_tokens(model).tolist() == [0, *range(3, 7), *range(8, 64)]


@pytest.mark.parametrize(("family", "ahead"), [("llama-default", False), ("bert", True), ("gptj", False)])
def test_models_that_see_both_ways_are_told_from_causal_ones(family, ahead):
    assert sees_ahead(FAMILIES[family]()) == ahead


def test_a_model_without_attention_is_refused():
    class Plain(torch.nn.Module):
        config = FAMILIES["llama-default"]().config

        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(1))

        def forward(self, **_):
            return None

    with pytest.raises(UnsupportedError, match="Plain shows no attention kernel"):
        sees_ahead(Plain())


def test_texts_are_cut_and_padded(tokenizer):
    data = text_sequences(FAMILIES["llama-default"](), ["w7 w8 w9", "w5", "w6 w7 w8 w9 w10"], 4, tokenizer)
    assert data.ids.tolist() == [[7, 8, 9, 0], [6, 7, 8, 9]]
    assert data.lengths.tolist() == [3, 4]
    assert data.scored.tolist() == [[True, True, False, False], [True, True, True, False]]


def test_tokens_are_hidden_from_models_that_see_both_ways(tokenizer):
    bert = FAMILIES["bert"]()
    data = text_sequences(bert, ["w7 w8 w9 w10"] * 5, 9, tokenizer)
    assert (data.ids[data.scored] == 4).all()
    task = task_sequences(bert, "induction", 3, 16, tokenizer)
    assert (task.ids[task.scored] == 4).all()
    with pytest.raises(ConfigError, match="BertForMaskedLM is bidirectional, so tokens must be masked"):
        task_sequences(bert, "induction", 3, 16)


def test_special_tokens_are_neither_asked_for_nor_drawn(tmp_path):
    """Of a text of one word, BERT would be asked for [CLS] or [SEP] twice of three times."""
    bert = FAMILIES["bert"]()
    bert.config.save_pretrained(tmp_path)
    save_tokenizer(tmp_path, framed=True)
    tokenizer = open_tokenizer(str(tmp_path))
    data = text_sequences(bert, [f"w{word}" for word in range(5, 25)] + ["unknown"], 9, tokenizer)
    assert data.targets[data.scored].tolist() == list(range(5, 25))
    assert data.ids[:, 0].eq(1).all()
    ids = torch.tensor([[1, 7, 2]] * 9)
    assert token_sequences(bert, ids, tokenizer).scored.tolist() == [[False, True, False]] * 9
    bert.config.bos_token_id = bert.config.eos_token_id = None
    assert {3, 4} < {*drawable_tokens(bert).tolist()}
    assert drawable_tokens(bert, tokenizer).tolist() == list(range(5, 64))
    task = task_sequences(bert, "induction", 40, 32, tokenizer)
    assert not torch.isin(task.targets[task.scored], torch.arange(5)).any()


def test_behind_an_encoder_the_second_half_is_asked_for(tokenizer):
    t5 = FAMILIES["t5"]()
    data = text_sequences(t5, ["w7 w8 w9 w10"], 9, tokenizer)
    assert (data.read.tolist(), data.ids.tolist(), data.targets.tolist()) == ([[7, 8]], [[0, 9]], [[9, 10]])
    task = task_sequences(t5, "induction", 3, 16)
    assert torch.equal(task.targets[:, 1:], task.read[:, 1:])
    t5.config.decoder_start_token_id = t5.config.pad_token_id = None
    with pytest.raises(ConfigError, match="T5ForConditionalGeneration has no decoder_start_token_id"):
        text_sequences(t5, ["w7 w8"], 9, tokenizer)


def test_a_tokenizer_without_a_mask_hides_nothing(tmp_path):
    FAMILIES["bert"]().config.save_pretrained(tmp_path)
    save_tokenizer(tmp_path, mask=False)
    with pytest.raises(ConfigError, match="give a tokenizer with a mask token"):
        text_sequences(FAMILIES["bert"](), ["w7 w8"], 9, open_tokenizer(str(tmp_path)))


def test_texts_without_tokens_are_refused(tokenizer):
    with pytest.raises(ConfigError, match="none of the texts has two tokens"):
        text_sequences(FAMILIES["llama-default"](), ["w7", ""], 9, tokenizer)


def test_files_of_texts(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_text("one text\n\n  \nanother\n")
    assert read_texts(path) == ["one text", "another"]
    path.write_text("\n")
    with pytest.raises(ConfigError, match="holds no text; one text is expected on each line"):
        read_texts(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="is no text in UTF-8"):
        read_texts(path)
    with pytest.raises(StoreError, match="cannot read"):
        read_texts(tmp_path / "nothing.txt")


def test_a_checkpoint_without_a_tokenizer_is_named(tmp_path):
    FAMILIES["llama-default"]().save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match="has no tokenizer that can be read"):
        open_tokenizer(str(tmp_path))


@pytest.mark.parametrize("family", ["gpt2", "t5", "bert"])
def test_a_tokenizer_that_the_library_makes_up_is_none(family, tmp_path):
    FAMILIES[family]().save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match=r"has no tokenizer that can be read: no file of it\."):
        open_tokenizer(str(tmp_path))


def test_the_reason_is_told_whatever_the_library_raises(tmp_path):
    transformers.EsmConfig(**SIZES).save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match="has no tokenizer that can be read: expected str"):
        open_tokenizer(str(tmp_path))


def test_a_tokenizer_of_bytes_needs_no_files(tmp_path):
    FAMILIES["t5"]().config.save_pretrained(tmp_path)
    transformers.ByT5Tokenizer().save_pretrained(tmp_path)
    assert open_tokenizer(str(tmp_path)).encode("a", 4) == [ord("a") + 3, 1]


def test_a_tokenizer_larger_than_the_vocabulary_is_refused(tokenizer):
    small = build("Llama", "ForCausalLM", **SIZES | {"vocab_size": 60})
    with pytest.raises(ConfigError, match="up to 63, and LlamaForCausalLM knows 60; put the model's own"):
        text_sequences(small, ["w5 w6"], 9, tokenizer)
    with pytest.raises(ConfigError, match="tokens up to 63, and BertForMaskedLM knows 60"):
        task_sequences(
            build("Bert", "ForMaskedLM", **SIZES | {"vocab_size": 60}), "induction", 4, 12, tokenizer
        )
