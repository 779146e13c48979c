"""Probe linear attention with a single key: what queries read of it at each lag is the decay."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from spectrope.checkpoints.adapters import Inputs, before, idle_feed_forwards, recorded, running
from spectrope.checkpoints.adapters.linear import LinearSite

STEPS = (1, 3)  # Tokens of the forward passes behind a cache: one token, then a chunk.


@dataclass(frozen=True)
class OneKey:
    r"""Input of a layer of linear attention with one key, and what its heads give.

    Every query is the same vector, and every key and value is zero except those at one position o. Without
    rotation, the head's output at position p is then :math:`w(p - o)` times a constant vector, where w is the
    weight of the lag.

    Args:
        n_heads: Heads of every layer.
        origins: Position of the key in each row of the batch.
        weights: By module, what each head reads at each position, with shape (b, t, h), in forward passes one
            after another.
    """

    n_heads: int
    origins: tuple[int, ...]
    weights: dict[str, list[Float[Tensor, "b t h"]]] = field(default_factory=dict)

    @contextmanager
    def replacing(self, model: nn.Module, sites: Sequence[LinearSite], start: int) -> Iterator[None]:
        """While the block runs, layers get this input, from position `start` on."""
        modules = {site.heads: site.module for site in sites}

        def read(name: str, args: Any, given: dict[str, Any]) -> None:
            heads = args[0].detach().double().cpu().unflatten(-1, (self.n_heads, -1))
            self.weights.setdefault(modules[name], []).append(heads.mean(-1))

        with ExitStack() as stack:
            for site in sites:
                projection: Any = model.get_submodule(site.projection)
                stack.enter_context(running(projection, self._projected(projection, start)))
            stack.enter_context(before(model, modules, read))
            yield

    def _projected(self, projection: nn.Linear, start: int) -> Any:
        """The projection's output (b, t, heads * 3 * width) for these queries, keys and values."""

        def project(x: Float[Tensor, "b t c"]) -> Tensor:
            shape = (self.n_heads, 3, projection.out_features // (3 * self.n_heads))
            out = x.new_zeros(*x.shape[:2], *shape)
            out[..., 0, :] = 1
            for row, origin in enumerate(self.origins):
                if 0 <= origin - start < x.shape[1]:
                    out[row, origin - start, :, 1:] = 1
            return out.flatten(2)

        return project

    def read(self, module: str) -> Float[Tensor, "b t h"]:
        """What the heads of a layer read at every position, in all forward passes."""
        return torch.cat(self.weights[module], 1)


@torch.no_grad()
def one_key(
    model: nn.Module,
    sites: Sequence[LinearSite],
    attending: Sequence[str],
    n_heads: int,
    length: int,
    origins: Sequence[int],
    *,
    cached: bool = False,
) -> OneKey:
    """Run the model with one key in every layer of linear attention.

    Args:
        model: A Hugging Face model, in evaluation mode.
        sites: Its layers of linear attention.
        attending: Dotted names of its modules of softmax attention, which run without attention.
        n_heads: Heads of each layer of linear attention.
        length: Positions.
        origins: Positions of the key, one per row of the batch.
        cached: Whether the last positions run behind a cache: one by itself, then the others as a chunk.
    """
    probe = OneKey(n_heads, tuple(origins))
    rows = len(probe.origins)
    steps = (length - sum(STEPS), *STEPS) if cached else (length,)
    cache: dict[str, Any] = {}
    modules = [*attending, *(site.module for site in sites)]
    with idle_feed_forwards(model, modules), recorded(model, lambda _: None):
        for i, step in enumerate(steps):
            given = Inputs(rows, step).of(model) | ({"use_cache": True} if cached else {}) | cache
            with probe.replacing(model, sites, sum(steps[:i])):
                output = model(**given)
            cache = {"past_key_values": output.past_key_values} if cached else {}
    return probe
