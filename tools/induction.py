"""Train a small Llama on repeated random tokens until it has induction heads, and save it as a checkpoint.

    python -m tools.induction induction-llama

Each sequence of the generated text repeats with a period of its own, so that no fixed lag predicts the
next token: the model has to look up what followed the same token before, which is what induction heads do.
Training stops once it predicts 96 % of the repeated tokens of held-out sequences.
"""

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from spectrope.checkpoints.sequences import Sequences, predicting, repeated_tokens

VOCABULARY, LENGTH, BATCH = 64, 64, 64
ENOUGH = 0.96  # Accuracy on repeated tokens at which training stops.
STEPS, WARMUP, RATE, CHECKED = 6000, 100, 1e-3, 100


def sizes() -> LlamaConfig:
    """Four layers of four heads with 16 coordinate pairs each."""
    return LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=4,
        num_attention_heads=4,
        max_position_embeddings=256,
        bos_token_id=None,
        eos_token_id=None,
    )


def text(n: int, seed: int) -> Sequences:
    """Sequences that repeat, each with its own period between 2 and half the length."""
    ids, wanted = repeated_tokens(np.arange(VOCABULARY), n, LENGTH, "distance", seed)
    return predicting(ids, wanted, torch.full((n,), LENGTH))


@torch.no_grad()
def accuracy(model: LlamaForCausalLM, data: Sequences) -> float:
    """Share of repeated tokens that are predicted."""
    logits = model(input_ids=data.ids).logits
    return float((logits.argmax(-1) == data.targets)[data.scored].float().mean())


def train(model: LlamaForCausalLM) -> None:
    """Train until the model predicts repeated tokens."""
    optimiser = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.98), weight_decay=0.01)
    held_out, started = text(128, seed=0), time.process_time()
    for step in range(1, STEPS + 1):
        for group in optimiser.param_groups:
            group["lr"] = RATE * min(1.0, step / WARMUP)
        loss = next_token_loss(model, text(BATCH, seed=step).ids)
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        if step % CHECKED == 0:
            right, seconds = accuracy(model, held_out), time.process_time() - started
            print(
                f"step {step}: loss {float(loss.detach()):.3f}, repeats {right:.3f}, {seconds:.0f} s",
                flush=True,
            )
            if right >= ENOUGH:
                return


def next_token_loss(model: LlamaForCausalLM, ids: Tensor) -> Tensor:
    """Cross-entropy of all tokens but the first."""
    return model(input_ids=ids, labels=ids).loss


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path, help="where to save the checkpoint")
    folder = parser.parse_args().folder
    torch.manual_seed(0)
    model = LlamaForCausalLM(sizes())
    train(model)
    model.save_pretrained(folder)
    print(f"saved in {folder}")


if __name__ == "__main__":
    main()
