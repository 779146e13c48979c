"""Packed sequences: several texts in one row, told apart by positions that begin anew."""

from itertools import pairwise

import torch

from spectrope.checkpoints.adapters import sequences_told_apart
from spectrope.checkpoints.audit.compare import Discrepancy
from spectrope.checkpoints.audit.serving.content import Text, other_outputs
from spectrope.checkpoints.audit.serving.kernels import Refused, named_layer
from spectrope.checkpoints.audit.serving.model import TEXTS, ServedModel
from spectrope.checkpoints.probes.constant_content import convolves

PACKED = {"second": "the first", "third": "an earlier one"}


def packed(served: ServedModel) -> list[Discrepancy]:
    """Three sequences in one row.

    Raises:
        Refused: If the model makes no difference between them.
    """
    ends = (0, served.padding, (served.padding + served.prompt) // 2, served.prompt)
    each = [slice(start, stop) for start, stop in pairwise(ends)]
    positions = torch.cat([torch.arange(one.stop - one.start) for one in each])[None].to(served.device)

    def run() -> None:
        served.forward(served.prompt, position_ids=positions)

    with sequences_told_apart() as told:
        received = served.served(run)
    kernels = {module: served.applied(calls[0]) for module, calls in received.calls.items()}
    findings: list[Discrepancy] = []
    for (which, seen), one in zip(PACKED.items(), each[1:], strict=True):
        leaking = [name for name, k in kernels.items() if bool(k.allowed[0, :, one, : one.start].any())]
        if leaking and max(told, default=1) < 2:
            raise Refused("the model takes them for one")
        findings += served.first_misplaced(received, one)
        about = [f"mask of {named_layer(module)}" for module in leaking]
        text = f"{seen} seen from the {which}"
        findings += [Discrepancy(what, "sequences apart", text, by="expected") for what in about]
        for module, kernel in kernels.items():
            if convolves(served.model.get_submodule(module)):
                continue  # whose first keys hold the tokens before them
            findings += served.differing(module, kernel.part(one), slice(0, one.stop - one.start))
    return findings or _other_outputs(served)


def _other_outputs(served: ServedModel) -> list[Discrepancy]:
    """What differs in the outputs for varied content of five texts, some of which are short."""
    half = served.prompt // 2
    wanted = (0, served.padding, served.padding + 1, half, half + 5, served.prompt)
    ends = sorted({min(end, served.prompt) for end in wanted})
    texts = [Text(0, slice(*of), f"in text {n} of {TEXTS}", n) for n, of in enumerate(pairwise(ends))]
    positions = torch.cat([torch.arange(stop - start) for start, stop in pairwise(ends)])[None]

    def run() -> None:
        served.forward(served.prompt, position_ids=positions.to(served.device))

    return other_outputs(served, run, *texts)
