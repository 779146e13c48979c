"""Evaluate many ablated variants of one model, with shared computations done once.

Removing a head changes nothing before its layer and, within that layer, only the computation after the output
projection. Variants therefore form a tree that branches where they begin to differ. The trunk is computed
once, and branches of a layer with a single variant each are computed together as one batch.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar, runtime_checkable

from jaxtyping import Float
from torch import Tensor

from spectrope.lab.ablation.interventions import HeadAblation, Variant

State = TypeVar("State")  # State before a layer: the residual stream and everything else that the pass needs.
Behind = TypeVar("Behind", covariant=True)  # The same behind a layer.


@runtime_checkable
class Fork(Protocol[Behind]):
    """A layer at which variants diverge, with shared computations done once."""

    def advance(self, changes: Variant) -> Behind:
        """The state behind the layer with some of its heads changed."""
        ...

    def finish(self, variants: Sequence[Variant]) -> Float[Tensor, "v b *out"]:
        """Outputs of the model for variants that change nothing before this layer."""
        ...


@runtime_checkable
class Stages(Protocol[State]):
    """A model on some examples, cut before and behind every layer's heads; it is never changed itself."""

    @property
    def n_layers(self) -> int:
        """Layers whose heads can be changed."""
        ...

    def start(self) -> State:
        """Input of the first layer."""
        ...

    def fork(self, layer: int, x: State, changes: Sequence[Variant]) -> Fork[State]:
        """A layer with input x, some of whose heads will be changed."""
        ...

    def read(self, x: State) -> Float[Tensor, "b *out"]:
        """Outputs of the model, from those of the last layer."""
        ...


@dataclass(frozen=True)
class Tree(Generic[State]):
    """The variants of a model on some examples.

    Args:
        stages: The model and the examples.
        variants: Sets of ablations.
        room: Number of variants that fit in one batch.
    """

    stages: Stages[State]
    variants: Sequence[Variant]
    room: int

    def grow(self) -> Iterator[tuple[list[int], Float[Tensor, "v b *out"]]]:
        """Indices of variants and the outputs of the model for them, in any order."""
        yield from self._trunk(0, self.stages.start(), list(range(len(self.variants))))

    def _trunk(
        self, layer: int, x: State, which: list[int]
    ) -> Iterator[tuple[list[int], Float[Tensor, "v b *out"]]]:
        """Variants that share the state x before a layer."""
        if layer == self.stages.n_layers:
            out = self.stages.read(x)
            yield which, out.expand(len(which), *out.shape)
            return
        groups: dict[Variant, list[int]] = defaultdict(list)
        for place in which:
            groups[changes_in(self.variants[place], layer)].append(place)
        fork = self.stages.fork(layer, x, list(groups))
        for changes, members in groups.items():
            if len(members) > 1:
                yield from self._trunk(layer + 1, fork.advance(changes), members)
        single = [members[0] for members in groups.values() if len(members) == 1]
        for start in range(0, len(single), self.room):
            some = single[start : start + self.room]
            yield some, fork.finish([self.variants[place] for place in some])


def changes_in(variant: Variant, layer: int) -> tuple[HeadAblation, ...]:
    """What a variant changes in a layer."""
    return tuple(sorted({ablation for ablation in variant if ablation.layer == layer}))


def fills_of(variants: Sequence[Variant]) -> set[str]:
    """Fills that variants use."""
    return {ablation.fill for variant in variants for ablation in variant}
