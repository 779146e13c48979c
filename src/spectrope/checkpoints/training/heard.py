"""Queries and keys of some heads in one training step, as the kernel received them and before."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from spectrope.checkpoints.adapters import Call, after
from spectrope.checkpoints.adapters.listening import listening
from spectrope.checkpoints.audit.bias import row_centred

HeadsByModule = Mapping[str, Sequence[int]]  # By the dotted name of the attention module.


@dataclass(frozen=True, eq=False)
class HeardLayer:
    """The chosen heads of one layer on the first positions of one example.

    Args:
        heads: Their numbers.
        q: Queries as they enter the product.
        k: Keys likewise, of the key-value heads that these read.
        added: What is added to the scaled product, or None.
        parts: What each inner module put out, position by position, by its dotted name.
        scale: Factor on the products.
        causal: Whether later keys are hidden.
        noise: Relative rounding error of the arithmetic.
    """

    heads: tuple[int, ...]
    q: Float[Tensor, "h n d"]
    k: Float[Tensor, "h n d"]
    added: Float[Tensor, "#h n n"] | None
    parts: Mapping[str, Float[Tensor, "n _"]]
    scale: float
    causal: bool
    noise: float


@dataclass(eq=False)
class Listener:
    """Records one forward pass of a model that trains.

    Args:
        model: The model.
        heads: The heads to record.
        positions: Positions recorded at most.
    """

    model: nn.Module
    heads: HeadsByModule
    positions: int
    heard: dict[str, HeardLayer] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.inner = {
            f"{name}.{part}": name
            for name in self.heads
            for part, _ in self.model.get_submodule(name).named_modules()
            if part
        }

    @contextlib.contextmanager
    def listening(self, positions: Tensor | None) -> Iterator[None]:
        """Record what runs in the block.

        Args:
            positions: Those that the model was given, with shape (b, n); None where it counts by itself.
        """
        self.heard, parts = {}, dict[str, dict[str, Tensor]]()
        limit = self.positions if positions is None else min(self.positions, _consecutive(positions[0]))

        def note(name: str, output: Any) -> None:
            if isinstance(output, Tensor) and output.ndim >= 3:
                parts.setdefault(self.inner[name], {})[name] = output[0].detach()

        def receive(call: Call) -> None:
            if call.module in self.heads and call.module not in self.heard:
                heads = tuple(self.heads[call.module])
                self.heard[call.module] = _layer(call, heads, parts.get(call.module, {}), limit)

        with after(self.model, self.inner, note), listening(self.model, self.heads.keys(), receive):
            yield


def _consecutive(positions: Tensor) -> int:
    """How many of the first positions follow each other."""
    jumps = (positions.diff() != 1).nonzero()
    return int(jumps[0]) + 1 if len(jumps) else len(positions)


def _layer(call: Call, heads: tuple[int, ...], parts: Mapping[str, Tensor], limit: int) -> HeardLayer:
    n, total, groups = min(limit, call.q.shape[2]), call.q.shape[2], call.q.shape[1] // call.k.shape[1]
    with torch.no_grad():
        q, k = call.q[0, list(heads), :n], call.k[0, [head // groups for head in heads], :n]
        scale, added = 1.0 if call.scale is None else call.scale, None
        if call.logits is not None:
            scale, added = _parted(call.logits[0, list(heads), :n, :n], q, k, call.allowed[0, :1, :n, :n])
        elif call.bias is not None:
            bias = call.bias[0, list(heads)] if call.bias.shape[1] > 1 else call.bias[0]
            added = bias[:, :n, :n].detach().clone()
        rows = {name: _rows(output, total, n) for name, output in parts.items()}
        return HeardLayer(
            heads=heads,
            q=q.detach().clone(),
            k=k.detach().clone(),
            added=added,
            parts={name: one for name, one in rows.items() if one is not None},
            scale=scale,
            causal=not bool(call.allowed[0, 0, 0, 1:].any()),
            noise=float(torch.finfo(q.dtype).eps),
        )


def _parted(
    logits: Float[Tensor, "h n n"], q: Tensor, k: Tensor, allowed: Tensor
) -> tuple[float, Float[Tensor, "h n n"] | None]:
    """Factor and bias of logits that a model shows whole: rows aside, products and the lag explain them."""
    n, products, seen = q.shape[1], q.double() @ k.double().mT, allowed.expand(logits.shape)
    lag = (torch.arange(n)[:, None] - torch.arange(n)).double().to(q.device).expand(logits.shape)
    x, along, y = (row_centred(one, seen)[seen].view(len(q), -1) for one in (products, lag, logits.double()))
    solved = torch.linalg.lstsq(torch.stack([x, along], -1), y[..., None]).solution
    scale = solved[:, 0].median().item()
    rest = (logits.double() - scale * products).masked_fill(~seen, 0.0)
    small = float(row_centred(rest, seen).abs().max()) <= 1e-3 * float(y.abs().max())
    return scale, None if small else rest


def _rows(output: Tensor, total: int, n: int) -> Tensor | None:
    """What a module put out, a row per position; None where it has none."""
    if output.ndim == 3 and output.shape[0] != total and output.shape[1] == total:
        output = output.transpose(0, 1)
    return output[:n].flatten(1).clone() if len(output) == total else None
