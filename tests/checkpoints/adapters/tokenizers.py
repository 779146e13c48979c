"""A tokenizer of words, as checkpoints carry it."""

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

WORDS = ("<pad>", "<s>", "</s>", "<unk>", "<mask>")


def save_tokenizer(folder, *, mask: bool = True) -> None:
    """Words w5 to w63 and some special tokens, whose ids are their numbers."""
    names = {name: i for i, name in enumerate((*WORDS, *(f"w{i}" for i in range(5, 64))))}
    words = Tokenizer(models.WordLevel(names, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    special = {"pad_token": "<pad>", "unk_token": "<unk>"} | ({"mask_token": "<mask>"} if mask else {})
    PreTrainedTokenizerFast(tokenizer_object=words, **special).save_pretrained(folder)
