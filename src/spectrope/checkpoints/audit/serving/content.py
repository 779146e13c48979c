"""Outputs of attention layers for varied content, which show keys and values that are exchanged or stale.

Kernels for constant content show neither: all its values are equal, and without a rotation its keys are, too.
"""

from collections.abc import Callable, Iterator
from itertools import product
from operator import attrgetter
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from spectrope.checkpoints.adapters import layer_name
from spectrope.checkpoints.audit.compare import Discrepancy
from spectrope.checkpoints.audit.serving.kernels import PLAIN, Refused, named_layer
from spectrope.checkpoints.audit.serving.model import ServedModel
from spectrope.checkpoints.probes.varied_content import Outputs, Varied

ALIKE, ROUNDINGS = 1e-4, 8  # Share of an output's size by which it may differ, or so many roundings.
TINY = 1e-30  # Instead of the size of outputs that are all 0.
FAINT = 1e-2  # Outputs are of at least that share of the largest one's size.


class Text(NamedTuple):
    """Where a batch holds a text.

    Args:
        row: Of the batch.
        slots: Of the row.
        note: Which text it is, in words.
        number: Texts of different numbers have no token in common.
        first: Its token in the first of these slots.
    """

    row: int
    slots: slice
    note: str = ""
    number: int = 0
    first: int = 0


def other_outputs(
    served: ServedModel,
    run: Callable[[], Any],
    *texts: Text,
    required: bool = False,
    crossing: bool = True,
) -> list[Discrepancy]:
    """Layers whose output for varied content is not that of a plain forward pass over the same text.

    Layers with a convolution of their own are left out where texts lie beside padding or other texts, which
    it mixes with them.

    Args:
        served: The model.
        run: Runs it in a serving mode.
        texts: Those of a batch.
        required: Whether the mode is refused if no output can be compared, as nothing else of it is.
        crossing: Whether the encoder has the tokens of the plain forward pass, which cross-attention reads.

    Raises:
        Refused: If the model does not run so.
    """
    places = torch.arange(served.tokens).repeat(1 + max(one.row for one in texts), 1)
    for one in texts:
        stop = one.first + len(places[one.row, one.slots])
        places[one.row, one.slots] = served.places(stop, one.number)[one.first :]
    found, beside = served.varied(run, places), _are_beside(texts, places)
    findings: list[Discrepancy] = []
    if required and not found.outputs:
        raise Refused("no layer's output can be compared")
    for module, outputs in found.outputs.items():
        if beside and _convolves(served.model.get_submodule(module)):
            continue
        if module in served.crossing and not (crossing and _reads_encoder(served, found)):
            continue
        crosses = " to the encoder" if module in served.crossing else ""
        about = f"output of {named_layer(module)}{crosses} for varied content"
        findings += _differing(served, about, module, outputs, texts, attrgetter("outputs"))
    alone = not beside and not served.crossing  # Some models mix neighbours' embeddings.
    for module, states in found.entering.items() if alone else ():
        about = f"input of {named_layer(module)}"
        findings += _differing(served, about, module, states, texts, attrgetter("entering"))
    return findings


def _are_beside(texts: tuple[Text, ...], places: Tensor) -> bool:
    """Whether texts lie beside padding or behind another text, and do not fill their rows."""
    held = torch.zeros_like(places, dtype=torch.bool)
    for one in texts:
        held[one.row, one.slots] = True
    return not bool(held.all()) or any(one.slots.start and not one.first for one in texts)


def _differing(
    served: ServedModel,
    about: str,
    module: str,
    states: list[Tensor],
    texts: tuple[Text, ...],
    part: Callable[[Varied], Outputs],
) -> Iterator[Discrepancy]:
    """Where what goes into a module, or comes out, is not that of a plain forward pass.

    Args:
        served: The model.
        about: What it is, in words.
        module: Dotted name of the module.
        states: Of each of its calls in one pass.
        texts: Those of the batch.
        part: What of a plain forward pass they are compared with.
    """
    if not all(bool(one.isfinite().all()) for one in states):
        yield Discrepancy(about, PLAIN, "not finite, perhaps beside the text", by="expected")
        return
    for (nth, whole), text in product(enumerate(states), texts):
        got = whole[text.row, text.slots].double()
        length = len(range(*text.slots.indices(served.tokens))) if module in served.crossing else len(got)
        plain = part(served.plain(text.first + length, text.number)).get(module)
        if plain is None or not len(got):
            continue
        wanted = plain[nth][0, text.first : text.first + len(got)].double()
        sizes = wanted.norm(dim=-1)
        off = (got - wanted).norm(dim=-1) / sizes.clamp(min=FAINT * sizes.max()).clamp(min=TINY)
        if not bool(off.max() <= max(ALIKE, ROUNDINGS * served.noise)):
            token = text.first + int(off.argmax())
            said = f"off by {100 * off.max().item():.2g} % at token {token}"
            yield Discrepancy(about, PLAIN, said, text.note, by="expected")


def _reads_encoder(served: ServedModel, found: Varied) -> bool:
    """Whether an encoder's states are the same in both, because all of its layers got the content."""
    encoder = {module for module in served.modules if layer_name(module)[0] == "encoder"}
    sparse = any(call.sparse is not None for module in encoder for call in served.plain_pass.calls[module])
    return bool(encoder) and encoder <= found.outputs.keys() and not sparse


def _convolves(attention: nn.Module) -> bool:
    return any(isinstance(part, _ConvNd) and max(part.kernel_size) > 1 for part in attention.modules())
