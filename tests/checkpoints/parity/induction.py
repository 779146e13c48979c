"""A small Llama with induction heads: `python -m tests.checkpoints.parity.induction` trains it.

The weights lie beside this file. Training takes about two minutes on one core of a CPU.
"""

import sys
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
import transformers
from torch import Tensor

FOLDER = Path(__file__).with_name("induction")
VOCABULARY, LENGTH, WIDTH, STEPS = 48, 128, 64, 1500
SHORTEST, LONGEST = 4, LENGTH // 3  # Tokens of a period.
OF_ALL_TOKENS = 0.1  # Weight of the loss of all tokens, beside that of those that repeat.


def sequences(n: int, length: int, seed: int) -> tuple[Tensor, Tensor]:
    """Random tokens with a random period, and which of them repeat."""
    generator = torch.Generator().manual_seed(seed)
    periods = torch.randint(SHORTEST, max(SHORTEST + 1, length // 3), (n, 1), generator=generator)
    drawn = torch.randint(0, VOCABULARY, (n, length), generator=generator)
    places = torch.arange(length)[None]
    return drawn.gather(1, places % periods), places > periods


def untrained() -> Any:
    """The model with random weights."""
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=WIDTH,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            intermediate_size=2 * WIDTH,
            max_position_embeddings=LENGTH,
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=None,
        )
    )


def accuracy(model: Any, seed: int) -> float:
    """How often a token that repeats is the most probable one."""
    ids, repeated = sequences(32, LENGTH, seed)
    with torch.no_grad():
        best = model(ids).logits.argmax(-1)[:, :-1]
    return float((best == ids[:, 1:])[repeated[:, 1:]].double().mean())


def train() -> Any:
    """The model after `STEPS` steps of AdamW."""
    model = untrained()
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.99), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 3e-3, total_steps=STEPS)
    for step in range(STEPS):
        ids, repeated = sequences(32, LENGTH, step)
        logits, wanted, asked = model(ids).logits[:, :-1], ids[:, 1:], repeated[:, 1:]
        loss = F.cross_entropy(logits[asked], wanted[asked])
        loss = loss + OF_ALL_TOKENS * F.cross_entropy(logits.flatten(0, 1), wanted.flatten())
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
    return model.eval()


if __name__ == "__main__":
    model = train()
    model.save_pretrained(FOLDER)
    sys.stdout.write(f"{FOLDER.name}: {accuracy(model, STEPS):.1%} of the tokens that repeat\n")
