"""Embeddings in the place of tokens, as tuned prompts and models of pictures pass them on."""

from dataclasses import replace
from typing import Any

from spectrope.checkpoints.adapters import Inputs
from spectrope.checkpoints.audit.compare import Discrepancy
from spectrope.checkpoints.audit.serving.content import Text, other_outputs
from spectrope.checkpoints.audit.serving.model import ServedModel

EMBEDDED = "inputs_embeds"


def embedded(served: ServedModel) -> list[Discrepancy]:
    """All tokens at once, embedded by the caller."""
    inputs = Inputs(1, served.tokens).of(served.model)
    table: Any = served.model.get_input_embeddings()  # pyright: ignore[reportCallIssue]

    def run() -> None:
        states = table(inputs["input_ids"])
        served.model(**{EMBEDDED: states}, **{key: x for key, x in inputs.items() if key != "input_ids"})

    received = served.served(run)
    # Longformer also embeds padding, before.
    lasts = {table: looked_up[-1:] for table, looked_up in received.rows.items()}
    return served.consecutive(replace(received, rows=lasts)) or other_outputs(
        served, run, Text(0, slice(None))
    )


def takes_embeddings(served: ServedModel) -> bool:
    """Whether the forward pass of a model of one stack takes them, and the model has a table of its own."""
    finds = hasattr(served.model, "get_input_embeddings")
    return finds and not served.config.is_encoder_decoder and EMBEDDED in served.arguments
