"""Weights of a checkpoint that belong to attention or to positions and that the model has no place for."""

import re
from collections import defaultdict
from collections.abc import Collection

from torch import nn

from spectrope.checkpoints.adapters import ignored_weights
from spectrope.checkpoints.audit.compare import Discrepancy
from spectrope.checkpoints.audit.records import IgnoredRecord

OF_POSITIONS = re.compile(
    r"(^|\.)wpe\.|embed_positions|(^|[._])(pos|position|relative|distance)(_[a-z]+)*_?(emb|bias|encod)"
)
# Buffers that old versions saved, though a class computes them.
COMPUTED = re.compile(r"inv_freq|masked_bias|position_ids|rotary_emb|(^|\.)attn\.bias$")


def unread_weights(model: nn.Module, attending: Collection[str]) -> tuple[IgnoredRecord, ...]:
    """A record per kind of weight that the model's checkpoint holds, within attention or of positions, and
    that its class did not load.

    Weights of further layers are none of them if the class has their kind in those that it has.

    Args:
        model: The whole model.
        attending: Dotted names of its attention modules.
    """
    places = tuple(f"{_within(name)}." for name in attending)
    known = {*map(_within, model.state_dict())}
    found: dict[str, list[str]] = defaultdict(list)
    for name in ignored_weights(model):
        kind = _within(name)
        place = next((place for place in places if kind.startswith(place)), "")
        if kind not in known and not COMPUTED.search(name) and (place or OF_POSITIONS.search(name)):
            found[kind.removeprefix(place)].append(name)
    note = f"{type(model).__name__} has no place for them"
    return tuple(
        IgnoredRecord(
            kind,
            "differs",
            (Discrepancy(f"weights {kind}", _counted(names), "none loaded", note, by="in the checkpoint"),),
        )
        for kind, names in sorted(found.items())
    )


def _within(name: str) -> str:
    """What a dotted name says within a layer, which is of any number; all of it outside layers."""
    return re.split(r"\.\d+\.", f".{name}", maxsplit=1)[-1].removeprefix(".")


def _counted(names: list[str]) -> str:
    return "1 tensor" if len(names) == 1 else f"{len(names)} tensors"
