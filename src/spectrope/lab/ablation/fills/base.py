"""Base class of fills, which replace a head's output, and the data that they may use."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import ClassVar, Literal

from jaxtyping import Float
from torch import Tensor

from spectrope.attention import Heads, attention
from spectrope.core import ConfigError, Registered, Registry, UnsupportedError, is_foreign
from spectrope.encodings import Context, Encoding

FILLS: Registry[type["Fill"]] = Registry("fill", "spectrope.lab.ablation.fills", "Fill")
Need = Literal["means", "lags", "donors"]


@dataclass(frozen=True)
class LayerMeans:
    """Means over the tokens of a data set, in the intact model, of one layer's heads."""

    outputs: Float[Tensor, "h k"]
    queries: Float[Tensor, "h d"]
    keys: Float[Tensor, "h d"]
    lags: Float[Tensor, " h"] | None = None  # At which each head attends, weighted by its pattern.


@dataclass(frozen=True)
class Site:
    """The heads of one layer in one forward pass, with data that fills may need.

    Args:
        heads: The module.
        encoding: The encoding that acts there.
        ctx: Queries and keys before rotation, positions and mask.
        v: Values, with shape (b, h, j, k).
        outputs: Outputs of all heads, with shape (b, h, i, k).
        impl: Attention implementation, or "fastest".
        data_means: Means over a data set, for fills that need "means".
        donor_outputs: Outputs of the same heads on other examples, with shape (b, h, i, k), for fills that
            need "donors".
    """

    heads: Heads
    encoding: Encoding
    ctx: Context
    v: Tensor
    outputs: Float[Tensor, "b h i k"]
    impl: str
    data_means: LayerMeans | None = None
    donor_outputs: Tensor | None = None

    @property
    def means(self) -> LayerMeans:
        """Means over a data set.

        Raises:
            UnsupportedError: If there are none, because no fill has declared that it needs them.
        """
        if self.data_means is None:
            raise UnsupportedError(_undeclared("means"))
        return self.data_means

    @property
    def donors(self) -> Float[Tensor, "b h i k"]:
        """Outputs of the same heads on other examples.

        Raises:
            UnsupportedError: If there are none, because no fill has declared that it needs them.
        """
        if self.donor_outputs is None:
            raise UnsupportedError(_undeclared("donors"))
        return self.donor_outputs

    @property
    def lags(self) -> Float[Tensor, " h"]:
        """Mean lag at which each head attends.

        Raises:
            UnsupportedError: If there are none, because no fill has declared that it needs them.
        """
        if self.data_means is None or self.data_means.lags is None:
            raise UnsupportedError(_undeclared("lags"))
        return self.data_means.lags

    def attend(self, ctx: Context, encoding: Encoding, v: Tensor | None = None) -> Float[Tensor, "b h i k"]:
        """Outputs of the heads with another context, encoding or values."""
        v = self.v if v is None else v
        return attention(ctx, v, encoding, causal=self.heads.causal, impl=self.impl)

    def attend_reference(self, ctx: Context, encoding: Encoding) -> Float[Tensor, "b h i k"]:
        """Outputs of the heads under an encoding of any form, from its logits."""
        return attention(ctx, self.v, encoding, causal=self.heads.causal, impl="reference")

    def filled(self, fill: str) -> Float[Tensor, "b h i k"]:
        """Replacement for the output of every head.

        Raises:
            UnsupportedError: If the fill is undefined for the encoding, or for a single head.
            ConfigError: If its output has the wrong shape.
        """
        output = fill_of(fill).output(self)
        try:
            return output.to(self.outputs.dtype).expand_as(self.outputs)
        except RuntimeError:
            got, wanted = tuple(output.shape), tuple(self.outputs.shape)
            raise ConfigError(f"fill {fill!r} must broadcast to {wanted} (b, h, i, k); got {got}.") from None


class Fill(Registered, ABC):
    """Replacement for a head's output, before the output projection.

    A subclass registers its name (`class Mean(Fill, name="mean")`), under which ablations, commands and
    tables know it.
    """

    registry = FILLS
    kind: ClassVar[str]
    needs: ClassVar[frozenset[Need]] = frozenset()  # Data that it needs from the rest of the data set.

    @classmethod
    def at(cls, setting: str) -> "Fill":
        """The fill with a setting, written behind its name, as in `remove-band@1of4`.

        Raises:
            ConfigError: If it takes none, or not this one.
        """
        raise ConfigError(f"fill {cls.kind!r} takes no setting; got {setting!r}.")

    @abstractmethod
    def output(self, site: Site) -> Tensor:
        """Replacement for the output of every head; its shape broadcasts to (b, h, i, k).

        Raises:
            UnsupportedError: If the fill is undefined for the encoding.
        """


class LayerFill(Fill):
    """A fill that changes the outputs of all heads of a layer, whichever head is ablated."""

    def output(self, site: Site) -> Tensor:
        raise UnsupportedError(
            f"fill {self.kind!r} changes all heads of a layer; it has no output for one head."
        )

    @abstractmethod
    def layer_output(self, site: Site, heads: Collection[int]) -> Float[Tensor, "b h i k"]:
        """Outputs of all heads of a layer when some of them are ablated.

        Raises:
            UnsupportedError: If the fill is undefined for the attention.
        """


def needs_of(fills: Iterable[str]) -> frozenset[Need]:
    """Data that some fills need from the rest of the data set."""
    return frozenset().union(*(fill_of(fill).needs for fill in fills))


def layer_fills(fills: Iterable[str]) -> set[str]:
    """Those of some fills that change all heads of a layer."""
    return {fill for fill in fills if isinstance(fill_of(fill), LayerFill)}


def fill_of(spec: str) -> Fill:
    """The fill that a name describes, with its setting if there is one: "zero", ``remove-band@1of4``.

    Raises:
        UnknownNameError: If no fill has that name.
        ConfigError: If it does not take this setting.
    """
    name, at, setting = spec.partition("@")
    return FILLS[name].at(setting) if at else FILLS[name]()


def resolved_fill(spec: str) -> str:
    """The name of a fill as tables know it; a class in a file (`file.py:Class`) is executed.

    Raises:
        UnknownNameError: If no fill has that name.
        ConfigError: If the file cannot be run, or the fill does not take its setting.
    """
    if not isinstance(spec, str) or is_foreign(spec) or "@" not in spec:
        return FILLS.resolve(spec)
    name, _, setting = spec.partition("@")
    name = FILLS.resolve(name)
    FILLS[name].at(setting)
    return f"{name}@{setting}"


def require_pairwise(site: Site, fill: Fill) -> None:
    """Raise an error for encodings in which content and position cannot be separated.

    Raises:
        UnsupportedError: If a logit depends on tokens other than its own query and key.
    """
    if not site.encoding.pairwise:
        raise UnsupportedError(
            f"fill {fill.kind!r} needs an encoding whose logits each depend on one query and one key; those "
            f"of {type(site.encoding).__name__} depend on other tokens too."
        )


def _undeclared(need: Need) -> str:
    return (
        f"this fill takes {need} and was given none: a fill declares them by "
        f"needs = frozenset({{{need!r}}}), and `ablated` takes them as {need}=."
    )
