"""Outputs of attention layers for varied content, which show keys and values that are exchanged or stale.

Kernels for constant content show neither: all its values are equal, and without a rotation its keys are, too.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from spectrope.checkpoints.audit.compare import Discrepancy
from spectrope.checkpoints.audit.serving.kernels import PLAIN, named_layer
from spectrope.checkpoints.audit.serving.model import ServedModel

ALIKE, ROUNDINGS = 1e-4, 8  # Share of an output's size by which it may differ, or so many roundings.
TINY = 1e-30  # Instead of the size of outputs that are all 0.
FAINT = 1e-2  # Outputs are of at least that share of the largest one's size.


class Text(NamedTuple):
    """Where a batch holds a text.

    Args:
        row: Of the batch.
        slots: Of the row.
        note: Which text it is, in words.
    """

    row: int
    slots: slice
    note: str = ""


def other_outputs(served: ServedModel, run: Callable[[], Any], *texts: Text) -> list[Discrepancy]:
    """Layers whose output for varied content is not that of a plain forward pass over the same text.

    Layers with a convolution of their own are left out where texts lie beside padding or other texts, which
    it mixes with them.

    Args:
        served: The model.
        run: Runs it in a serving mode.
        texts: Those of a batch; their first tokens are alike, and so on.
    """
    places = torch.arange(served.tokens).repeat(1 + max(one.row for one in texts), 1)
    for one in texts:
        places[one.row, one.slots] = torch.arange(len(places[one.row, one.slots]))
    findings: list[Discrepancy] = []
    for module, outputs in served.outputs(run, places).items():
        if len(texts) > 1 and _convolves(served.model.get_submodule(module)):
            continue
        about = f"output of {named_layer(module)} for varied content"
        for one, wanted, got in _pairs(served, module, outputs, texts):
            sizes = wanted.norm(dim=-1)
            off = (got - wanted).norm(dim=-1) / sizes.clamp(min=FAINT * sizes.max()).clamp(min=TINY)
            if not bool(off.max() <= max(ALIKE, ROUNDINGS * served.noise)):
                text = f"off by {100 * off.max().item():.2g} % at query {int(off.argmax())}"
                findings.append(Discrepancy(about, PLAIN, text, one.note, by="expected"))
    return findings


def _pairs(
    served: ServedModel, module: str, outputs: list[Tensor], texts: tuple[Text, ...]
) -> Iterator[tuple[Text, Float[Tensor, "t c"], Float[Tensor, "t c"]]]:
    """What a module puts out over each text in a plain forward pass, and in the serving mode."""
    for nth, output in enumerate(outputs):
        for one in texts:
            got = output[one.row, one.slots].double()
            plain = served.plain_outputs(len(got)).get(module)
            if plain is not None:
                yield one, plain[nth][0, : len(got)].double(), got


def _convolves(attention: nn.Module) -> bool:
    return any(isinstance(part, _ConvNd) and max(part.kernel_size) > 1 for part in attention.modules())
