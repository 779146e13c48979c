"""Interface of positional encodings, and the laws on which attention kernels rely."""

from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, ClassVar, TypeGuard, TypeVar, cast

import torch
from jaxtyping import Float
from torch import Tensor

from spectrope.core import (
    ConfigError,
    Configured,
    FromConfig,
    Registry,
    SeededModule,
    UnsupportedError,
    configured,
    initial_weights,
    require_type,
)
from spectrope.encodings.context import Context, Form, Scope, Side, Tag
from spectrope.encodings.docstrings import documented
from spectrope.encodings.named import NAMED
from spectrope.encodings.positions.axes import order

C = TypeVar("C", bound="Sized")

ENCODINGS: Registry[type["Encoding"]] = Registry("encoding", "spectrope.encodings", "Encoding")
for _name, _one in NAMED.items():
    ENCODINGS.reserve(_name, f"a name for {_one.spec!r}")


class Sized(Configured):
    """Base of configurations with fields that a model sets; subclasses are frozen dataclasses."""

    def fitted(self: C, **sizes: Any) -> C:
        """Return this configuration with the fields that the model sets, at any depth, filled in.

        Args:
            sizes: `d_model`, `n_heads`, `head_dim`, `max_length` and `causal` of the model.
        """
        names = {field.name for field in fields(cast(Any, self))}
        taken = {name: size for name, size in sizes.items() if name in names}
        held = {name: _fitted(getattr(self, name), sizes) for name in names - taken.keys()}
        return replace(cast(Any, self), **held, **taken)

    def size(self, name: str) -> Any:
        """The value of a field that the model sets, where it is least nested; None if no part has it."""
        level: list[Any] = [self]
        while level:
            found = [getattr(one, name) for one in level if hasattr(one, name)]
            if found:
                return found[0]
            level = [inner for one in level for inner in _inner(one)]
        return None


@dataclass(frozen=True, kw_only=True)
class EncodingConfig(Sized):
    """Base of the encodings' configurations; each declares only the sizes that it needs."""

    kind: ClassVar[str]

    def build(self) -> "Encoding":
        """Build the encoding of one layer from this configuration.

        Raises:
            ConfigError: If a field has a wrong type or value.
        """
        return ENCODINGS[self.kind](self)

    def build_layers(self, n_layers: int) -> "list[Encoding]":
        """Build the encoding of each layer: the same object n_layers times if its scope is MODEL."""
        with initial_weights():
            first = self.build()
            if first.scope is Scope.MODEL:
                return [first] * n_layers
            return [first, *(self.build() for _ in range(n_layers - 1))]


def _fitted(value: Any, sizes: dict[str, Any]) -> Any:
    """What a field holds, with the model's sizes written into every configuration inside it."""
    if isinstance(value, tuple):
        return tuple(_fitted(item, sizes) for item in value)
    return value.fitted(**sizes) if hasattr(value, "fitted") else value


def _inner(config: Any) -> Iterator[Any]:
    """The configurations in the fields of one, those in tuples included."""
    for field in fields(config):
        value = getattr(config, field.name)
        yield from (one for one in (value if isinstance(value, tuple) else (value,)) if is_dataclass(one))


def _positions(x: Float[Tensor, "b h t d"], pos: Tensor | None) -> Tensor:
    """Positions (b or 1, t) of vectors, or with axes: 0, 1, ... where none are given."""
    return torch.arange(x.shape[-2], device=x.device)[None] if pos is None else torch.atleast_2d(pos)


class Encoding(FromConfig, SeededModule):
    r"""No encoding at all (NoPE), and the base of all others: every method is the identity or absent.

    Logits are :math:`L_{ij} = s\,\langle R(q_i, i), R(k_j, j)\rangle/\sqrt d + b_{ij}`, with :math:`R`
    given by `rotate`, :math:`b` by `bias` and :math:`s` by `logit_scale`; inputs to the first layer pass
    through `embed`.

    A class declares its form, tags and scope, and whether its effect on a prefix is independent of later
    tokens (`prefix_consistent`). Instances override these if they depend on the configuration.

    An encoding is built from its configuration, or from the fields of that, and acts on plain tensors:

        >>> import torch
        >>> q, k = torch.randn(2, 1, 8, 16, 64)  # (b, h, t, d) each
        >>> rope = sp.encodings.RoPE(head_dim=64)
        >>> rope(q, k).shape  # Logits of 16 queries and 16 keys, at positions 0 to 15.
        torch.Size([1, 8, 16, 16])
        >>> sp.encodings.ALiBi(n_heads=8).lag_bias(torch.arange(1, 4))[:, 0]  # Of head 0, lag by lag.
        tensor([-0.5000, -1.0000, -1.5000])

    Args:
        config: The encoding's own configuration, an instance of its `Config`.
        fields: Fields of the configuration, if no `config` is given; all others keep their defaults.

    Raises:
        ConfigError: If both are given, `config` has another type, or a field is unknown or breaks a rule.
    """

    registry = ENCODINGS
    Config: ClassVar[type[EncodingConfig]] = EncodingConfig
    form: Form = Form.DOT
    tags: frozenset[Tag] = frozenset({Tag.SHIFT_INVARIANT, Tag.CONTENT_FREE, Tag.ISOMETRIC})
    scope: Scope = Scope.MODEL
    prefix_consistent: bool = True
    logit_scale: float = 1.0
    axes: int = 1  # Coordinates of a position that it reads; 1 is the order of the tokens.
    family: ClassVar[str] = "none"

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Register the class, if it has a name.

        Raises:
            ConfigError: If it defines a bias of the lag that nothing would add to the logits.
        """
        ignored = cls.bias is Encoding.bias and cls.logits is Encoding.logits
        if ignored and cls.lag_bias is not Encoding.lag_bias:
            raise ConfigError(
                f"{cls.__name__}.lag_bias would be ignored; derive from sp.encodings.LagBias, which adds it "
                "to the logits, or define bias(self, ctx)."
            )
        super().__init_subclass__(**kwargs)

    def __init__(self, config: EncodingConfig | None = None, **fields: Any) -> None:
        super().__init__()
        self.config: Any = configured(type(self).Config, config, fields)  # Of the subclass's own type.
        self.setup(self.config)
        self._require_form()

    def extra_repr(self) -> str:
        """The configuration, shown in the representation of the module."""
        return ", ".join(f"{one.name}={getattr(self.config, one.name)!r}" for one in fields(self.config))

    def _require_form(self) -> None:
        """Refuse a method that the declared form would leave unused; a form set by `setup` is trusted."""
        cls = type(self)
        unused = {
            "logits": cls.form is not Form.GENERAL,
            "read": cls.form is not Form.GENERAL,
            "bias": cls.form is Form.DOT,
        }
        for name, is_unused in unused.items():
            if is_unused and "form" not in vars(self) and getattr(cls, name) is not getattr(Encoding, name):
                needed = "DOT_PLUS_BIAS" if name == "bias" else "GENERAL"
                raise ConfigError(
                    f"{cls.__name__}.{name} would be ignored by implementations for the form "
                    f"{cls.form.name}; declare `form = sp.encodings.Form.{needed}` in the class."
                )

    def setup(self, config: Any) -> None:
        """Create parameters and buffers from the configuration; subclasses override it."""

    def forward(
        self,
        q: Float[Tensor, "b h i d"],
        k: Float[Tensor, "b h j d"],
        q_pos: Tensor | None = None,
        k_pos: Tensor | None = None,
        *,
        x_q: Tensor | None = None,
        x_k: Tensor | None = None,
    ) -> Float[Tensor, "b h i j"]:
        """Attention logits of queries and keys, before the mask; `embed`, if any, must be applied before.

        Args:
            q: Queries before rotation.
            k: Keys before rotation.
            q_pos: Positions of the queries, (i,) or (b or 1, i), or with axes (b or 1, i, 1 + axes), the
                order of the tokens first; default: 0, 1, ...
            k_pos: The same for the keys.
            x_q: Hidden states of the query side (b, i, c), for encodings that look at content.
            x_k: The same for the key side.

        Raises:
            ConfigError: If shapes or types are others, or sizes are not those of the configuration.
            UnsupportedError: If the encoding needs hidden states and gets none, or has no entry for a lag.
        """
        self._check_vectors(q, k)
        for side, x, pos, hidden in (("q", q, q_pos, x_q), ("k", k, k_pos, x_k)):
            self._check_side(side, x, pos, hidden)
        ctx = Context(q, k, _positions(q, q_pos), _positions(k, k_pos), x_q, x_k)
        return self.logits(ctx.on_axes(self.axes))

    def _check_side(self, side: str, x: Tensor, pos: object, hidden: object) -> None:
        """Refuse positions and hidden states that do not fit the queries or the keys."""
        (batch, _, length, _), name = x.shape, type(self).__name__
        if pos is not None:
            require_type(pos, Tensor, f"{side}_pos of {name}", "a tensor")
            kind, shape = cast(Tensor, pos).dtype, tuple(cast(Tensor, pos).shape)
            if kind is torch.bool or kind.is_complex:
                raise ConfigError(f"{side}_pos of {name} must be real numbers; got {kind}.")
            several = len(shape) in (2, 3) and shape[0] in (1, batch) and shape[1] == length
            if not (several or shape == (length,)):
                raise ConfigError(
                    f"{side}_pos of {name} must have shape ({length},), ({batch} or 1, {length}) or, with "
                    f"axes, ({batch} or 1, {length}, 1 + axes); got {shape}."
                )
        if hidden is not None:
            require_type(hidden, Tensor, f"x_{side} of {name}", "a tensor")
            shape = tuple(cast(Tensor, hidden).shape)
            if len(shape) != 3 or shape[:2] != (batch, length):
                raise ConfigError(f"x_{side} of {name} must have shape ({batch}, {length}, c); got {shape}.")
            if (width := self.config.size("d_model")) not in (None, shape[2]):
                raise ConfigError(f"{name} was built with d_model={width}; got x_{side} of width {shape[2]}.")

    def _check_vectors(self, q: Tensor, k: Tensor) -> None:
        """Refuse queries and keys that do not fit each other or the configuration."""
        name = type(self).__name__
        for side, x in (("queries", q), ("keys", k)):
            require_type(x, Tensor, f"{side} of {name}", "a tensor")
            if not x.is_floating_point() or x.dtype is not q.dtype:
                raise ConfigError(
                    f"{name} takes queries and keys of one floating-point type; got {q.dtype} and {k.dtype}."
                )
        given = f"got queries {tuple(q.shape)} and keys {tuple(k.shape)}."
        if not q.ndim == k.ndim == 4 or q.shape[:2] != k.shape[:2] or q.shape[3] != k.shape[3]:
            raise ConfigError(f"{name} takes queries (b, h, i, d) and keys (b, h, j, d); {given}")
        for size, number in (("n_heads", q.shape[1]), ("head_dim", q.shape[3])):
            if (expected := self.config.size(size)) not in (None, number):
                raise ConfigError(f"{name} was built with {size}={expected}; {given}")

    def states(self, ctx: Context) -> Float[Tensor, "b j c"]:
        """Hidden states of the keys, for encodings that gather them up to each query, the last keys.

        Raises:
            UnsupportedError: If the context contains none.
            ConfigError: If there are more queries than keys.
        """
        name, queries, keys = type(self).__name__, ctx.q.shape[-2], ctx.k.shape[-2]
        if ctx.x_k is None:
            raise UnsupportedError(
                f"{name} needs hidden states of the keys (x_k); the context contains none."
            )
        if queries > keys:
            raise ConfigError(
                f"{name} takes queries to be the last tokens among the keys; got {queries} queries and "
                f"{keys} keys."
            )
        return ctx.x_k

    @property
    def factors(self) -> bool:
        """Whether `logits` are determined by `rotate` and `bias`, even if the form is GENERAL because of the
        values."""
        return type(self).logits is Encoding.logits

    @property
    def turns(self) -> bool:
        """Whether `rotate` does anything."""
        return type(self).rotate is not Encoding.rotate

    @property
    def scales(self) -> bool:
        """Whether `scaled` does anything."""
        return self.logit_scale != 1

    @property
    def pairwise(self) -> bool:
        """Whether a logit depends on tokens only through its own query and key."""
        return Tag.CONTENT_FREE in self.tags

    def seen(self, pos: Tensor) -> Tensor:
        """Positions as `embed` and `rotate` expect them: with axes if the encoding reads several, otherwise
        the order."""
        return pos if self.axes > 1 else order(pos)

    def embed(self, x: Float[Tensor, "b t c"], pos: Tensor) -> Float[Tensor, "b t c"]:
        """Hidden states that enter the first layer, from token embeddings x at positions (b or 1, t)."""
        return x

    def scaled(self, q: Float[Tensor, "b h i d"]) -> Float[Tensor, "b h i d"]:
        """Queries multiplied by the factor on products, which `rotate` does not apply."""
        return q * self.logit_scale if self.scales else q

    def rotate(self, x: Float[Tensor, "b h t d"], pos: Tensor, side: Side) -> Float[Tensor, "b h t d"]:
        """Queries or keys as they enter the dot product, from x at positions (b or 1, t) or (t,)."""
        return x

    def bias(self, ctx: Context) -> Tensor | None:
        """Bias added to the logits, broadcastable to (b, h, i, j), or None."""
        return None

    def lag_bias(self, lag: Tensor) -> Tensor:
        """Bias per head, in logit units, of lags with any shape (*n,): returns (*n, h).

        Encodings of form DOT_PLUS_LAG define it; subclasses of `LagBias` need no other method. Lags
        may be whole or fractional; the bias is computed in float32 at least, in float64 for such lags.
        """
        raise UnsupportedError(f"{type(self).__name__} has no bias of the lag alone.")

    def logits(self, ctx: Context) -> Float[Tensor, "b h i j"]:
        """Attention logits before masking; only encodings of form GENERAL override this."""
        q, k = self.rotate(self.scaled(ctx.q), ctx.q_pos, "query"), self.rotate(ctx.k, ctx.k_pos, "key")
        scores = torch.matmul(q * ctx.scale, k.transpose(-1, -2))
        bias = self.bias(ctx)
        return scores if bias is None else scores + bias.to(scores.dtype)

    def read(
        self, pattern: Float[Tensor, "b h i j"], v: Float[Tensor, "b h j e"], ctx: Context
    ) -> Float[Tensor, "b h i e"]:
        """Head outputs from the pattern and the values; only encodings of form GENERAL override this."""
        return pattern @ v

    def parts(self) -> Iterator[tuple[slice, "Encoding"]]:
        """Pairs (heads, encoding), each of which may run on a different kernel."""
        yield slice(None), self


def is_encoding_class(value: object) -> TypeGuard[type[Encoding]]:
    """Whether a value is a class of encodings."""
    return isinstance(value, type) and issubclass(value, Encoding)


class LagBias(Encoding):
    r"""Base of biases of the head and the lag: :math:`L_{ij} = \langle q_i, k_j\rangle/\sqrt d + b_h(i-j)`.

    Dense bias, Toeplitz coefficients and FFT kernels all derive from `lag_bias`, the one method to define.
    The nested `Config` is a frozen dataclass that derives from `EncodingConfig`; all of its fields have
    defaults, and the model fills in `n_heads`.
    """

    form = Form.DOT_PLUS_LAG
    tags = frozenset({Tag.SHIFT_INVARIANT, Tag.CONTENT_FREE})

    def bias(self, ctx: Context) -> Tensor:
        lag = ctx.lag.double() if ctx.q.dtype is torch.float64 else ctx.lag
        return self.lag_bias(lag).movedim(-1, -3).contiguous()


@dataclass(frozen=True)
class CatalogueEntry:
    """Catalogue entry of an encoding or an attention layer, read from its class and docstring."""

    name: str
    family: str
    summary: str
    formula: str
    form: str
    tags: tuple[str, ...]
    reference: str


def describe(name: str) -> CatalogueEntry:
    """The catalogue entry of a registered encoding, with its default configuration."""
    cls = ENCODINGS[name]
    built = cls(cls.Config())
    tags = tuple(sorted(tag.name for tag in built.tags))
    text = documented(cls.__doc__)
    return CatalogueEntry(name=name, family=cls.family, form=built.form.name, tags=tags, **text)
