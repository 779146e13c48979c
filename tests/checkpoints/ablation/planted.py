"""A Llama whose heads have costs that follow from its construction."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from spectrope.checkpoints.sequences import Sequences

LAYERS, HEADS, DIM = 2, 4, 8
WIDTH, KINDS = HEADS * DIM, 3
NEEDED = {1: (0, 1), 2: (1, 2)}  # The head without which tokens of a kind are followed by another one.


def planted(needed: dict[int, tuple[int, int]] | None = None) -> LlamaForCausalLM:
    """A Llama in which a head decides between two predictions behind tokens of one kind, and no other acts.

    Tokens 0, 1 and 2 are the kinds. Behind kind k follows 2k, but 2k + 1 without the head of this kind, which
    adds 1 to a coordinate of its own, wherever it attends: values are the same at every position. Attention
    itself is random.

    Args:
        needed: Head of each kind; all others have no output.
    """
    torch.manual_seed(0)
    sizes = {"hidden_size": WIDTH, "intermediate_size": 16, "num_hidden_layers": LAYERS}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=2 * KINDS, num_attention_heads=HEADS, **sizes)).eval()
    constant, own = 0, KINDS + 1  # Coordinates 1 to KINDS hold the kind of a token.
    with torch.no_grad():
        embedded, read = model.model.embed_tokens.weight.zero_(), model.lm_head.weight.zero_()
        embedded[:, constant] = 1.0
        for kind in range(KINDS):
            embedded[kind, 1 + kind] = 1.0
            read[2 * kind : 2 * kind + 2, 1 + kind] = 10.0
            read[2 * kind, own + kind], read[2 * kind + 1, constant] = 1.0, 0.5
        for layer, block in enumerate(model.model.layers):
            block.mlp.down_proj.weight.zero_()
            block.self_attn.v_proj.weight.zero_()
            block.self_attn.o_proj.weight.zero_()
            for kind, (place, head) in (NEEDED if needed is None else needed).items():
                if place == layer:
                    block.self_attn.v_proj.weight[DIM * head, constant] = (2 / WIDTH) ** 0.5
                    block.self_attn.o_proj.weight[own + kind, DIM * head] = 1.0
    return model


def kinds(shares: tuple[float, ...], n: int, length: int = 10, seed: int = 0) -> Sequences:
    """Tokens of kinds with these probabilities, and what follows each in a model with both heads."""
    draw = torch.Generator().manual_seed(seed)
    ids = torch.multinomial(torch.tensor(shares), n * length, replacement=True, generator=draw)
    ids = ids.reshape(n, length)
    return Sequences(ids, 2 * ids, torch.full((n,), length))


def costs(data: Sequences) -> dict[tuple[int, int], float]:
    """Drops in points by head: the share of tokens of its kind; 0 for all others."""
    drops = {(layer, head): 0.0 for layer in range(LAYERS) for head in range(HEADS)}
    return drops | {place: 100 * float((data.ids == kind).double().mean()) for kind, place in NEEDED.items()}
