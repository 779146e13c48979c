"""A language model as the ablation of heads sees it."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from spectrope.core.errors import UnsupportedError
from spectrope.models.adapters import HeadSite, after, before, blocks_of, head_sites
from spectrope.probes.constant_content import attention_modules
from spectrope.tasks.sequences import Sequences


@dataclass(frozen=True)
class Subject:
    """A language model and where its heads come out.

    Args:
        model: In evaluation mode.
        sites: Its heads, layer by layer.
    """

    model: nn.Module
    sites: list[HeadSite]

    @classmethod
    def of(cls, model: nn.Module) -> "Subject":
        """The subject that a Hugging Face model makes.

        Raises:
            UnsupportedError: If it is no language model with one stack of layers, or hides its heads.
        """
        name, config = type(model).__name__, getattr(model, "config", None)
        embeddings = getattr(model, "get_output_embeddings", lambda: None)()
        if config is None or embeddings is None:
            raise UnsupportedError(f"{name} predicts no tokens, so the loss of a head cannot be measured.")
        if config.is_encoder_decoder:
            raise UnsupportedError(f"{name} has two stacks; heads are cut in models with one.")
        return cls(model, head_sites(model, attention_modules(model)))

    @cached_property
    def blocks(self) -> list[tuple[str, int]]:
        """Names of all blocks of the stack, and in how many parts each puts its output out."""
        return list(blocks_of(self.model, self.sites))

    @cached_property
    def predictor(self) -> str:
        """Name of the module that turns states into token logits."""
        embeddings: Any = self.model.get_output_embeddings()  # pyright: ignore[reportCallIssue]
        return next(name for name, module in self.model.named_modules() if module is embeddings)

    def projection(self, layer: int) -> nn.Module:
        """The module that projects a layer's heads."""
        return self.model.get_submodule(self.sites[layer].projection)

    def inputs(self, data: Sequences, copies: int) -> dict[str, Any]:
        """Arguments of the model's forward call for several copies of the sequences."""
        given: dict[str, Any] = {"input_ids": data.ids.repeat(copies, 1)}
        if not bool(data.real.all()):
            given["attention_mask"] = data.real.long().repeat(copies, 1)
        config: Any = self.model.config
        return given | ({"use_cache": False} if "use_cache" in config.to_dict() else {})

    def captured(self, data: Sequences) -> list[Float[Tensor, "b t f"]]:
        """The heads of every layer side by side, from one pass of the model as it is."""
        found: dict[str, Tensor] = {}
        names = [site.projection for site in self.sites]

        def note(name: str, args: Any, given: Any) -> None:
            found[name] = args[0]

        with (
            before(self.model, names, note),
            contextlib.suppress(Enough),
            _ending(self, len(self.sites) - 1),
        ):
            self.model(**self.inputs(data, 1))
        return [found[name] for name in names]


class Enough(Exception):  # noqa: N818
    """Ends a pass once what it is run for is known."""


@contextlib.contextmanager
def _ending(subject: Subject, layer: int) -> Iterator[None]:
    """End a pass once a layer's heads have been projected."""

    def stop(_: str, __: Any) -> None:
        raise Enough

    with after(subject.model, [subject.sites[layer].projection], stop):
        yield
