"""A tokenizer of words, as checkpoints carry it."""

from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

WORDS = ("<pad>", "<s>", "</s>", "<unk>", "<mask>")


def save_tokenizer(folder, *, mask: bool = True, framed: bool = False) -> None:
    """Words w5 to w63 and some special tokens, whose ids are their numbers.

    Args:
        folder: Of the checkpoint.
        mask: Whether it can hide tokens.
        framed: Whether texts begin and end with tokens of their own, as those of BERT.
    """
    names = {name: i for i, name in enumerate((*WORDS, *(f"w{i}" for i in range(5, 64))))}
    words = Tokenizer(models.WordLevel(names, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    special = {"pad_token": "<pad>", "unk_token": "<unk>"} | ({"mask_token": "<mask>"} if mask else {})
    if framed:
        ends = [("<s>", 1), ("</s>", 2)]
        words.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=ends)
        special |= {"cls_token": "<s>", "sep_token": "</s>"}
    PreTrainedTokenizerFast(tokenizer_object=words, **special).save_pretrained(folder)
