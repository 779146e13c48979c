"""One model of a pair, measured."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from torch import nn

from spectrope.checkpoints.adapters import Call, evaluating, runs_at, trained_length, whole_config
from spectrope.checkpoints.audit.records import Audit, LayerRecord
from spectrope.checkpoints.probes.constant_content import attention_modules
from spectrope.checkpoints.probes.shared_content import shared_content


@dataclass(frozen=True, eq=False)
class Member:
    """One model of a pair.

    Args:
        name: What it is called in reports.
        model: The model.
        audit: What it applies.
    """

    name: str
    model: nn.Module
    audit: Audit

    @property
    def config(self) -> Any:
        """The configuration of its text part."""
        config: Any = whole_config(self.model)
        return config.get_text_config()

    @property
    def vocabulary(self) -> int | None:
        """Number of token ids."""
        return getattr(self.config, "vocab_size", None)

    @property
    def trained(self) -> int | None:
        """Positions that its configuration gives it."""
        return trained_length(self.model)

    @cached_property
    def has_stacks(self) -> bool:
        """Whether its layers lie in several stacks; the name of a single one is left out."""
        return len({one.stack for one in self.audit.layers}) > 1

    def place(self, layer: LayerRecord) -> tuple[str, int]:
        """Stack and number of a layer, by which layers of two models correspond."""
        return layer.stack if self.has_stacks else "", layer.layer

    @cached_property
    def calls(self) -> dict[tuple[str, int], Call]:
        """What its kernels receive for inputs that every model of the pair gets, by place."""
        inner = getattr(self.model, "base_model", self.model)
        with evaluating(self.model), runs_at(16, self.model):
            calls = shared_content(inner, attention_modules(inner))
        return calls if self.has_stacks else {("", number): call for (_, number), call in calls.items()}

    @property
    def sizes(self) -> dict[str, Any]:
        """Sizes that models share whose weights correspond."""
        first = next(iter(self.calls.values()))
        return {
            "layers": len(self.audit.layers),
            "heads": f"{first.q.shape[1]}, {first.k.shape[1]} of keys",
            "width of heads": first.q.shape[-1],
            "width of states": getattr(self.config, "hidden_size", None),
            "vocabulary": self.vocabulary,
        }
