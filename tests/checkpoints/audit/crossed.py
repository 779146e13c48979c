"""Every fault in every family that it can be put into, not only in those in which its test puts it.

`python -m tests.checkpoints.audit.crossed [FAMILY ...]` prints what was missed or named otherwise.
"""

import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from functools import cache

import pytest
import torch
import transformers
from tests.checkpoints.audit.families import LENGTH
from tests.checkpoints.audit.test_injections import FAULTS, model_of
from tests.checkpoints.audit.zoo import asked_families
from torch import Tensor, nn

from spectrope.checkpoints.audit import Audit, audit
from spectrope.core import SpectropeError, unwatched

SAME = 1e-5  # Relative change of the outputs up to which a fault does nothing.


@cache
def sound(name: str) -> Audit | None:
    """The audit of an unmodified model, None where it is refused."""
    try:
        return audit(model_of(name), length=LENGTH, watch=unwatched)
    except SpectropeError:
        return None


@cache
def masks(name: str) -> frozenset[str]:
    """The shapes of the masks of an unmodified model."""
    layers = [] if (found := sound(name)) is None else found.layers
    return frozenset(layer.effective.mask.shape for layer in layers if layer.effective.mask is not None)


def applies(name: str, family: str) -> bool:
    """Whether a family masks as those of the fault's test do: many a fault of causal models is another one,
    or none, in encoders."""
    return masks(family) <= frozenset().union(*map(masks, FAULTS[name][1]))


def outputs(model: nn.Module) -> Tensor:
    """What a model makes of random tokens."""
    ids = torch.randint(3, 60, (1, LENGTH), generator=torch.Generator().manual_seed(1))
    given = {"decoder_input_ids": ids} if model.config.is_encoder_decoder else {}
    with torch.no_grad():
        out = model(input_ids=ids, **given)
    return out.logits if "logits" in out else out.last_hidden_state


def judged(name: str, family: str) -> tuple[str, str]:
    """ "named", "caught" by another code, layer or head, "missed", or "" where the fault does nothing.

    Layers are compared where the fault is in one of them: families have different numbers of layers.
    """
    inject, _, code, layers, heads = FAULTS[name]
    model = model_of(family)
    with pytest.MonkeyPatch.context() as patch:
        try:
            plain = outputs(model)
            inject(model, patch)
            changed = outputs(model)
        except Exception:  # Faults are written for functions of one form; models raise errors of many kinds.
            return "", ""
        if not (changed - plain).abs().max() > SAME * plain.abs().max():
            return "", ""
        try:
            found = audit(model, length=LENGTH, watch=unwatched)
        except SpectropeError as error:
            return "refused", str(error)
    records = found.records
    if not records:
        return "missed", "; ".join([found.outcome, *(one.reason for one in found.layers if one.reason)])
    elsewhere = layers in ({0}, {1}) and {one.layer for one in records} != layers
    if {one.code for one in records} == {code} and {one.head for one in records} == heads and not elsewhere:
        return "named", ""
    words = (f"{one.code} in {one.where}, head {one.head}: {one.message}" for one in records)
    return "caught", "; ".join(dict.fromkeys(words))


def campaign(chosen: list[str]) -> Iterator[tuple[str, str, str, str]]:
    """Every fault in every family whose unmodified model matches, with the word and why."""
    for family in chosen:
        if (plain := sound(family)) is None or not plain.ok:
            continue
        for name in FAULTS:
            if applies(name, family) and (told := judged(name, family))[0]:
                word, why = told
                yield name, family, word, why


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity(transformers.logging.CRITICAL)
    asked = asked_families("crossed", "Put every fault into every family.")
    counts: Counter[str] = Counter()
    for name, family, word, why in campaign(asked):
        counts[word] += 1
        if word != "named":
            sys.stdout.write(f"{word}: {name} in {family}: {why[:400]}\n")
            sys.stdout.flush()
    sys.stdout.write(f"{counts.total()} faults: {dict(counts)}\n")
