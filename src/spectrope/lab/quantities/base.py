"""Base class of spectral quantities: numbers computed from one head's logits on one example."""

from abc import ABC, abstractmethod
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from spectrope.core import Registered, Registry, digest_of
from spectrope.lab.probes.observed import ObservedLayer

QUANTITIES: Registry[type["HeadQuantity"]] = Registry("quantity", "spectrope.lab.quantities", "HeadQuantity")


class HeadQuantity(Registered, ABC):
    """A number that describes one head on one example, such as the Toeplitz share of its logits.

    A subclass registers its name (`class StableRank(HeadQuantity, name="stable_rank")`). Table "spectrum" of
    `spectrope spectrum` then has a column of that name with the mean over examples, columns with the ends of
    its interval, and table "correlation" has its correlation with the drops of the heads.
    """

    registry = QUANTITIES
    kind: ClassVar[str]
    heading: ClassVar[str] = ""  # Of its column in the terminal; without one it is not printed.
    caption: ClassVar[str] = ""  # Explanation of the heading, printed above that table.

    @abstractmethod
    def values(self, layer: ObservedLayer) -> Float[Tensor, "b h"] | None:
        """The quantity for every example and head, NaN where undefined; None if it is always undefined."""


def installed_quantities() -> tuple[str, ...]:
    """Names of all quantities except those from user files, which must be requested by name."""
    return tuple(name for name in QUANTITIES if digest_of(QUANTITIES[name]) is None)
