"""Kernels for constant content in serving modes: cached, padded and packed."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from dataclasses import replace as replace_fields
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from spectrope.checkpoints.adapters import (
    Call,
    after,
    before,
    equal_tokens_once,
    idle_feed_forwards,
    idle_head,
    recorded,
    states_of,
    with_states,
)
from spectrope.checkpoints.probes.constant_content import constant_like
from spectrope.checkpoints.probes.constant_token import looked_up, lookup, table_of


@dataclass(frozen=True, eq=False)
class Served:
    """What one serving mode applied.

    Args:
        calls: Kernel calls by module, in the order in which they were made.
        rows: Rows that were looked up in each table of positions, call by call, with shape (b, t).
        crossing: Kernel calls of modules that attend to an encoder, likewise.
        runs: How often each module ran, which may call its attention function several times in a run.
    """

    calls: dict[str, list[Call]]
    rows: dict[str, list[Tensor]]
    crossing: dict[str, list[Call]]
    runs: Counter[str]


@torch.no_grad()
def served(
    model: nn.Module,
    modules: list[str],
    tables: list[str],
    run: Callable[[], Any],
    seed: int = 0,
    crossing: Sequence[str] = (),
) -> Served:
    """Run a model in some way, with constant content in the place of every attention layer's input.

    Args:
        model: The whole model, in evaluation mode.
        modules: Dotted names of its attention modules.
        tables: Dotted names of its tables of positions.
        run: Runs the model.
        seed: Names the vectors; every row of the batch holds the same one.
        crossing: Dotted names of modules that attend to an encoder, which keep their inputs.
    """
    calls, rows, across = ({name: [] for name in names} for names in (modules, tables, crossing))
    received = Served(calls, rows, across, Counter())
    config: Any = model.config
    width = getattr(config.get_text_config(), "hidden_size", None)

    def replace(name: str, args: Any, given: dict[str, Any]) -> Any:
        received.runs[name] += 1
        states = states_of(args, given)
        turned = states.shape[-1] != width and states.shape[1] == width  # as convolutions take them
        rows = states.mT if turned else states
        one = constant_like(rows[:1], seed, name).expand_as(rows)
        return with_states(args, given, (one.mT if turned else one).contiguous())

    def look_up(name: str, output: Any) -> None:
        table = table_of(name, model.get_submodule(name))
        assert table is not None
        rows = looked_up(output)
        received.rows[name].append(lookup(table, rows.flatten(0, -2)).rows.reshape(rows.shape[:-1]))

    def receive(call: Call) -> None:
        if call.module in received.calls:
            # A static cache writes the keys of later calls into the same memory.
            received.calls[call.module].append(replace_fields(call, k=call.k.clone()))
        elif call.module in received.crossing:
            received.crossing[call.module].append(call)

    with (
        idle_feed_forwards(model, modules),
        equal_tokens_once(model, modules),
        idle_head(model),
        before(model, modules, replace),
        after(model, tables, look_up),
        recorded(model, receive),
    ):
        run()
    return received


def kernel_rows(
    call: Call,
) -> tuple[Float[Tensor, "b h i j"], Bool[Tensor, "b h i j"]]:
    """Logits without the mask, and which keys each query may see, for every row of the batch."""
    logits = call.unmasked()
    allowed = call.allowed.expand(logits.shape)
    return logits.double().masked_fill(~allowed, 0.0), allowed
