"""Small language models, trained until their logits are real ones, under certified attention.

`python -m tests.checkpoints.adapters.trained` prints what docs/how-to/fast-attention.md quotes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
import transformers
from torch import Tensor, nn

from spectrope.checkpoints.adapters import attention as adapter
from spectrope.checkpoints.sequences import predicting, repeated_tokens
from spectrope.fast.planning import HeadPlan, plan

STEPS, LENGTH, VOCABULARY = 300, 64, 24
SIZES: dict[str, Any] = {"vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2} | {
    "num_attention_heads": 4,
    "intermediate_size": 64,
}


def llama() -> Any:
    """A Llama with grouped keys."""
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES, num_key_value_heads=2))


def neox() -> Any:
    """A GPT-NeoX, which turns a quarter of its coordinates."""
    return transformers.GPTNeoXForCausalLM(transformers.GPTNeoXConfig(**SIZES))


BUILDS: dict[str, Callable[[], Any]] = {"Llama": llama, "GPT-NeoX": neox}


def repetitions(n: int, seed: int) -> Any:
    """Sequences whose second half repeats the first."""
    ids, wanted = repeated_tokens(np.arange(1, VOCABULARY), n, LENGTH, "induction", seed)
    return predicting(ids, wanted, torch.full((n,), LENGTH))


def loss(model: Any, data: Any) -> Tensor:
    """Mean cross-entropy of what repeats, in nats."""
    logits = model(data.ids).logits
    return F.cross_entropy(logits.flatten(0, 1), data.targets.flatten())


def trained(name: str) -> Any:
    """The model after some hundred steps of AdamW on repetitions."""
    torch.manual_seed(0)
    model = BUILDS[name]()
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(STEPS):
        optimiser.zero_grad()
        loss(model, repetitions(16, step)).backward()
        optimiser.step()
    return model.eval()


@dataclass(frozen=True)
class Seen:
    """One head in one call: its plan, and the error of its output in units of max|v|."""

    layer: int
    plan: HeadPlan
    error: float

    @property
    def bound(self) -> float | None:
        """What its certificate promises, where it is polynomial."""
        if self.plan.choice == "exact":
            return None
        assert self.plan.certificate is not None
        return self.plan.certificate.error_bound


def compared(model: Any, tolerance: float, monkeypatch: Any) -> tuple[list[Seen], float, float]:
    """Every head beside the exact kernel on the same queries, keys and values, and both losses.

    Every certified head is taken, however short the sequence.
    """
    seen: list[Seen] = []
    attend = adapter._attend

    def beside(module: nn.Module, states: tuple[Tensor, ...], mask: Tensor | None = None, **options: Any):
        plans: list[Any] = []
        options["on_plan"] = lambda module, made: plans.append(made)
        out, _ = attend(module, states, mask, **options)
        q, k, v = (x.double() for x in states)
        k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
        exact = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=options["scaling"])
        wrong = (out.transpose(1, 2) - exact).abs().amax((0, 2, 3)) / v.abs().amax((0, 2, 3))
        seen.extend(Seen(module.layer_idx, head, float(wrong[head.head])) for head in plans[0].heads)
        return out, None

    monkeypatch.setattr(adapter, "plan", lambda *args, **named: plan(*args, **named).with_all_fast())
    monkeypatch.setattr(adapter, "_attend", beside)
    data, losses = repetitions(32, STEPS), []
    for name in (adapter.register_attention(tolerance), "eager"):
        model.config._attn_implementation = name
        with torch.no_grad():
            losses.append(float(loss(model, data)))
    return seen, losses[0], losses[1]


def main() -> None:
    """Print a row per model and tolerance."""
    import pytest

    for name in BUILDS:
        model = trained(name)
        for tolerance in (1e-2, 1e-1):
            with pytest.MonkeyPatch.context() as patch:
                seen, fast, exact = compared(model, tolerance, patch)
            shares = [one.error / one.bound for one in seen if one.bound is not None]
            reach = sorted(one.plan.reach_bound for one in seen)
            print(
                f"{name}, tolerance {tolerance:g}: ranges {reach[0]:.2g} to {reach[-1]:.2g}; "
                f"{len(shares)} of {len(seen)} heads polynomial, "
                f"largest error {max(shares, default=float('nan')):.2g} of its certificate; "
                f"loss {exact:.4f} exact, {fast - exact:+.1e} nats"
            )


if __name__ == "__main__":
    main()
