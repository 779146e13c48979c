"""Derive properties of a composite encoding from those of its parts."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

from torch import nn

from spectrope.core import require
from spectrope.encodings.base import Encoding, EncodingConfig, Form, Scope, Tag


class Composite(Encoding):
    """Base of encodings composed of others: its form is the most general form of its parts, its laws are
    those that all parts satisfy.

    Args:
        config: The composite's own configuration.
        terms: The encodings that it is made of, at least one; None builds those that the configuration names.
        fields: Fields of the configuration, where none is given.
    """

    family = "composite"
    form = Form.GENERAL  # Until its terms are known.

    def __init__(
        self, config: EncodingConfig | None = None, terms: Sequence[Encoding] | None = None, **fields: Any
    ) -> None:
        super().__init__(config, **fields)
        self.compose(self.config, self.built(self.config) if terms is None else terms)

    @abstractmethod
    def built(self, config: Any) -> list[Encoding]:
        """The encodings that a configuration names."""

    def compose(self, config: Any, terms: Sequence[Encoding]) -> None:
        """Store the terms, and derive the properties of the composite from them."""
        self.form = max((term.form for term in terms), key=lambda form: form.value)
        self.tags = joint_tags(terms)
        shared = all(term.scope is Scope.MODEL for term in terms)
        self.scope = Scope.MODEL if shared else Scope.LAYER
        self.prefix_consistent = all(term.prefix_consistent for term in terms)
        self.axes = max(term.axes for term in terms)
        self._terms = nn.ModuleList(terms)

    @property
    def factors(self) -> bool:
        return all(term.factors for term in self.terms)

    @property
    def pairwise(self) -> bool:
        return all(term.pairwise for term in self.terms)

    @property
    def turns(self) -> bool:
        return any(term.turns for term in self.terms)

    @property
    def scales(self) -> bool:
        return any(term.scales for term in self.terms)

    def acts_on(self, width: int) -> range:
        """Number of coordinates of queries and keys that its terms rotate."""
        return range(width)

    @property
    def terms(self) -> list[Encoding]:
        """The encodings that it is made of."""
        return [term for term in self._terms if isinstance(term, Encoding)]


def joint_tags(terms: Sequence[Encoding]) -> frozenset[Tag]:
    """The laws that all terms satisfy, and LEARNED if any term is trained."""
    tags = [term.tags for term in terms]
    return (frozenset.intersection(*tags) - {Tag.LEARNED}) | (frozenset.union(*tags) & {Tag.LEARNED})


def layered(parts: Sequence[EncodingConfig], n_layers: int) -> Iterator[tuple[Encoding, ...]]:
    """The terms of each layer; what a model shares between layers is shared here too."""
    return zip(*(part.build_layers(n_layers) for part in parts), strict=True)


def require_no_input(terms: Sequence[Encoding], config: EncodingConfig, field: str) -> None:
    """Refuse terms that add to the input, because these cannot differ between heads or layers.

    Raises:
        ConfigError: If a term, or anything in it, changes the hidden states that enter the first layer.
    """
    leaves = [
        m for t in terms for m in t.modules() if isinstance(m, Encoding) and not isinstance(m, Composite)
    ]
    adds = any(type(leaf).embed is not Encoding.embed for leaf in leaves)
    rule = "encodings that leave the input alone"
    require(not adds, config, field, rule, "Put what adds to the input beside this one, in a Sum.")
