"""Load encodings by name or from a file, and test their laws."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import polars as pl

from spectrope.console import Shown
from spectrope.core import ConfigError, attempted, is_ours, place_of, require_type, with_fields
from spectrope.encodings import (
    ENCODINGS,
    Encoding,
    EncodingConfig,
    LawCheck,
    Sizes,
    is_encoding_class,
    parse_encoding,
)
from spectrope.encodings.laws import check_laws as checks_of
from spectrope.lab import AnyEncoding

COLUMNS = ("law", "declared", "holds", "error", "in float64", "note")


@dataclass(frozen=True, repr=False)
class Laws(Shown):
    """Declared and measured laws of one encoding.

    Args:
        encoding: Name of the encoding.
        checks: One check per law.
        sizes: The model in which it was tested.
    """

    encoding: str
    checks: tuple[LawCheck, ...]
    sizes: Sizes

    @property
    def honest(self) -> bool:
        """Whether every declared law holds and every undeclared one fails."""
        return all(check.honest for check in self.checks)

    def parts(self) -> Iterable[str | tuple[str, pl.DataFrame]]:
        yield f"laws of {self.encoding}, tested on {self.sizes.tried_on}", self.to_frame()

    def to_frame(self) -> pl.DataFrame:
        """A row per law: whether it is declared, whether it holds, its two errors, and a note."""
        rows = [
            (
                check.law.name.lower().replace("_", "-"),
                check.declared,
                check.holds,
                check.error,
                check.widened_error,
                check.note,
            )
            for check in self.checks
        ]
        return pl.DataFrame(rows, schema=COLUMNS, orient="row")


def load_encoding(spec: str, **fields: Any) -> Encoding:
    """Load an encoding by its registered name, or from your own file, which is executed.

    Args:
        spec: A name that `spectrope encodings` lists, with settings or without ("rope:yarn,factor=8"), or
            `path/to/file.py:Class`.
        fields: Fields of its configuration, at any depth; the others keep their defaults.

    Raises:
        UnknownNameError: If no encoding has that name.
        ConfigError: If the file cannot be run, or a field is unknown or breaks a rule.

    Example:
        >>> import spectrope as sp
        >>> sp.load_encoding("RoPE", head_dim=64).config.head_dim
        64
    """
    return with_fields(parse_encoding(spec), fields).build()


def check_laws(encoding: AnyEncoding | Any, seed: int = 0) -> Laws:
    """Test which laws an encoding satisfies, and whether its `tags` declare exactly these.

    Each law is tested on random contents twice: with the encoding unchanged, and built anew with all its
    float32 computations widened to float64, so that rounding is not mistaken for a violation. Positions are
    0, 1, ..., the same shifted by 17, and by 100,003 where the encoding reaches so far.
    `spectrope.encodings.Tag` describes the laws.

    Args:
        encoding: A name, `path/to/file.py:Class`, a class, a configuration, or an encoding. All but an
            encoding object are built for a small model; an object is tested in a model with the sizes that
            its configuration, or a part of it, holds.
        seed: Names the contents.

    Raises:
        UnknownNameError: If no encoding has that name.
        ConfigError: If it is none of these, your own encoding fails, or its `bias` is another than its
            `lag_bias`.

    Example:
        >>> import spectrope as sp
        >>> sp.check_laws("alibi").honest
        True
    """
    require_type(seed, int, "seed", "a whole number")
    if is_encoding_class(encoding):
        encoding = ENCODINGS.default(encoding)
    if isinstance(encoding, str):
        encoding = parse_encoding(encoding)
    if isinstance(encoding, Encoding):
        cls, sizes, build = type(encoding), _sizes_of(encoding.config), lambda: encoding
        name = getattr(encoding.config, "kind", cls.__name__)
    elif isinstance(encoding, EncodingConfig):
        cls, sizes, name = ENCODINGS[encoding.kind], Sizes(), encoding.kind
        build = encoding.fitted(**asdict(sizes)).build
    else:
        raise ConfigError(
            f"check_laws takes an encoding, its class, configuration or name; got {encoding!r}."
        )

    def checks() -> tuple[LawCheck, ...]:
        return tuple(checks_of(build(), sizes, seed))

    return Laws(name, checks() if is_ours(cls) else attempted(place_of(cls), checks), sizes)


def _sizes_of(config: EncodingConfig) -> Sizes:
    """The model of an encoding that is built already."""
    own = {name: config.size(name) for name in asdict(Sizes())}
    return Sizes(**{name: size for name, size in own.items() if size is not None})
