"""What encodings are together, from what each of them is."""

from collections.abc import Sequence

from torch import nn

from spectrope.encodings.base import Encoding, Form, Scope, Tag


def joint_form(parts: Sequence[Encoding]) -> Form:
    """The least special form among the parts, which holds for all."""
    return max((part.form for part in parts), key=lambda form: form.value)


def joint_tags(parts: Sequence[Encoding]) -> frozenset[Tag]:
    """The laws that all parts keep, and LEARNED where any part is."""
    tags = [part.tags for part in parts]
    return (frozenset.intersection(*tags) - {Tag.LEARNED}) | (frozenset.union(*tags) & {Tag.LEARNED})


def joint_scope(parts: Sequence[Encoding]) -> Scope:
    """MODEL where all layers share every part."""
    return Scope.MODEL if all(part.scope is Scope.MODEL for part in parts) else Scope.LAYER


def members(modules: nn.ModuleList) -> list[Encoding]:
    """The encodings that a composite holds."""
    return [module for module in modules if isinstance(module, Encoding)]
