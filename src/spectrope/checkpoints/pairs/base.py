"""Base class of roles, which define how two models must agree for a purpose."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from spectrope.checkpoints.pairs.member import Member
from spectrope.checkpoints.pairs.records import Obstacle
from spectrope.core import Registered, Registry

ROLES: Registry[type["PairRole"]] = Registry("role", "spectrope.checkpoints.pairs.roles", "PairRole")


@dataclass
class Verdict:
    """Result of one comparison.

    Args:
        obstacles: Reasons why the models do not fit.
        unclear: Properties that could not be determined.
        notes: Other observations.
    """

    obstacles: list[Obstacle] = field(default_factory=list)
    unclear: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class PairRole(Registered, ABC):
    """Relation of the second of two models to the first, such as "draft".

    A subclass names itself (`class Draft(PairRole, name="draft")`).
    """

    registry = ROLES
    kind: ClassVar[str]
    purpose: ClassVar[str]  # Completes "compatible for".
    names: ClassVar[tuple[str, str]]  # What the two are called.
    many: ClassVar[bool] = False  # Whether more than two models may be given.

    @abstractmethod
    def compare(self, first: Member, second: Member) -> Verdict:
        """Whether the second model fits the first."""

    @staticmethod
    def unknown(*members: Member) -> Iterator[str]:
        """Layers whose encoding is of no known family, so that they cannot be compared."""
        for member in members:
            for layer in member.audit.layers:
                if layer.effective.kind == "unknown":
                    yield f"layer {layer.name} of {member.name} applies no encoding that is known here"
