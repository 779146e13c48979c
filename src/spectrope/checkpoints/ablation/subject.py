"""A language model prepared for the ablation of heads."""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from spectrope.checkpoints.adapters import (
    Enough,
    HeadSite,
    Role,
    after,
    before,
    blocks_of,
    head_sites,
    require_own_head,
    rest_of,
)
from spectrope.checkpoints.extension.applied import AppliedRotations, applied_rotations
from spectrope.checkpoints.extension.rotations import rotations_of
from spectrope.checkpoints.probes.constant_content import attending_modules, attention_modules
from spectrope.checkpoints.sequences import Sequences
from spectrope.core import ConfigError, UnsupportedError


@dataclass(frozen=True)
class CheckpointSubject:
    """A language model and where its heads come out.

    Args:
        model: In evaluation mode.
        sites: Its heads, by attention modules in the order in which these run.
    """

    model: nn.Module
    sites: list[HeadSite]

    @classmethod
    def of(cls, model: nn.Module) -> "CheckpointSubject":
        """The subject that a Hugging Face model makes.

        Raises:
            UnsupportedError: If it is no language model, it hides its heads, or its checkpoint lacks the
                weights that predict tokens.
        """
        name, config = type(model).__name__, getattr(model, "config", None)
        embeddings = getattr(model, "get_output_embeddings", lambda: None)()
        if config is None or embeddings is None:
            raise UnsupportedError(f"{name} predicts no tokens, so the loss of a head cannot be measured.")
        subject = cls(model, head_sites(model, attending_modules(model)))
        require_own_head(model)
        return subject

    @cached_property
    def stacks(self) -> dict[str, list[tuple[str, int]]]:
        """Blocks by the dotted name of their stack, and in how many parts each puts its output out."""
        names = dict.fromkeys(site.stack for site in self.sites)
        return {name: list(blocks_of(self.model, self.sites, name)) for name in names}

    @cached_property
    def rotations(self) -> AppliedRotations:
        """The rotation that each attention module to its own sequence applies, measured once.

        Raises:
            UnsupportedError: If a module applies none of the rotary modules'.
        """
        return applied_rotations(self.model, attention_modules(self.model), rotations_of(self.model))

    @cached_property
    def predictor(self) -> str:
        """Name of the module that turns states into token logits."""
        embeddings: Any = self.model.get_output_embeddings()  # pyright: ignore[reportCallIssue]
        return next(name for name, module in self.model.named_modules() if module is embeddings)

    @cached_property
    def encoder(self) -> str:
        """Name of the module whose output a decoder attends to."""
        encoder: Any = self.model.get_encoder()  # pyright: ignore[reportCallIssue]
        return next(name for name, module in self.model.named_modules() if module is encoder)

    def of_layers(self, layers: slice) -> list[int]:
        """Places of the sites in some layers, as Python counts them in each stack."""
        counts = {site.role: 0 for site in self.sites}
        for site in self.sites:
            counts[site.role] = max(counts[site.role], site.layer + 1)
        chosen = {role: range(n)[layers] for role, n in counts.items()}
        return [place for place, site in enumerate(self.sites) if site.layer in chosen[site.role]]

    def heads(self, layers: slice) -> list[tuple[int, int]]:
        """Place of the site and number of every head in some layers, as Python counts them in each stack.

        Raises:
            ConfigError: If none of the layers exists.
        """
        places = self.of_layers(layers)
        if not places:
            last = max(site.layer for site in self.sites)
            raise ConfigError(f"layers must take at least one of 0 to {last}; got none.")
        return [(place, head) for place in places for head in range(self.sites[place].n_heads)]

    def named(self, heads: Sequence[tuple[int, int]]) -> tuple[tuple[Role, int, int], ...]:
        """Role, layer and number of heads that are given by the places of their sites and their numbers."""
        return tuple((self.sites[place].role, self.sites[place].layer, head) for place, head in heads)

    def projection(self, place: int) -> nn.Module:
        """The module that projects a site's heads."""
        return self.model.get_submodule(self.sites[place].projection)

    def run(self, data: Sequences, copies: int = 1, memory: Tensor | None = None) -> Any:
        """Run the model on several copies of the sequences.

        Args:
            data: The sequences.
            copies: How many.
            memory: Outputs of the encoder for one copy, with shape (b, s, c), if it need not run.
        """
        given: dict[str, Any] = data.inputs(copies)
        config: Any = self.model.config
        if memory is not None:
            given["encoder_outputs"] = (memory.repeat(copies, 1, 1),)
        return self.model(**given, **({"use_cache": False} if "use_cache" in config.to_dict() else {}))

    def scored_logits(
        self, data: Sequences, copies: int = 1, memory: Tensor | None = None
    ) -> Float[Tensor, "n classes"]:
        """Token logits at the scored places of all copies, from a pass of the model; no others are computed.

        Args:
            data: The sequences.
            copies: How many.
            memory: Outputs of the encoder for one copy, if it need not run.
        """
        rows = data.scored.repeat(copies, 1)

        def choose(_: str, args: Any, given: Any) -> Any:
            return (args[0][rows][None], *args[1:]), given

        with before(self.model, [self.predictor], choose):
            return self.run(data, copies, memory).logits[0]

    def handed_on(self, data: Sequences) -> dict[str, tuple[Any, ...]]:
        """Auxiliary outputs of modules and blocks that later ones may need, by name."""
        if not any(site.shares for site in self.sites):
            return {}
        outputs: dict[str, tuple[Any, ...]] = {}
        names = [site.module for site in self.sites]
        names += [name for blocks in self.stacks.values() for name, _ in blocks]

        def note(name: str, output: Any) -> None:
            outputs[name] = rest_of(output)
            if name == names[-1]:
                raise Enough

        with after(self.model, names, note), contextlib.suppress(Enough):
            self.run(data)
        return outputs

    def captured(self, data: Sequences) -> list[Float[Tensor, "b _ f"]]:
        """The heads of every site side by side, from one pass of the model as it is."""
        heads: dict[str, Tensor] = {}
        names = [site.projection for site in self.sites]

        def note(name: str, args: Any, given: Any) -> None:
            heads[name] = args[0]

        def stop(_: str, __: Any) -> None:
            raise Enough

        with (
            before(self.model, names, note),
            after(self.model, [names[-1]], stop),
            contextlib.suppress(Enough),
        ):
            self.run(data)
        return [heads[name] for name in names]
