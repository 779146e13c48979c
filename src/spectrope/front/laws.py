"""Load encodings by name or from a file, and test their laws."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import polars as pl

from spectrope.console import Shown, attempted, place_of
from spectrope.core import ConfigError, digest_of, require_type, with_fields
from spectrope.encodings import Encoding, EncodingConfig, LawCheck, Sizes, is_encoding_class, parse_encoding
from spectrope.encodings.laws import check_laws as checks_of
from spectrope.lab import AnyEncoding

COLUMNS = ("law", "declared", "holds", "error", "in float64", "note")


@dataclass(frozen=True, repr=False)
class Laws(Shown):
    """Declared and measured laws of one encoding.

    Args:
        encoding: Name of the encoding.
        checks: One check per law.
    """

    encoding: str
    checks: tuple[LawCheck, ...]

    @property
    def honest(self) -> bool:
        """Whether every declared law holds and every undeclared one fails."""
        return all(check.honest for check in self.checks)

    def parts(self) -> Iterable[str | tuple[str, pl.DataFrame]]:
        yield f"laws of {self.encoding}", self.to_frame()

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

    Each law is tested on random contents twice: with the encoding unchanged, and with all its float32
    computations widened to float64, so that rounding is not mistaken for a violation.
    `spectrope.encodings.Tag` describes the laws.

    Args:
        encoding: A name, `path/to/file.py:Class`, a class, a configuration, or an encoding. All but an
            encoding object are built for a small model; an object is tested in a model with the head width of
            its configuration.
        seed: Names the contents.

    Raises:
        UnknownNameError: If no encoding has that name.
        ConfigError: If it is none of these, or your own encoding fails.

    Example:
        >>> import spectrope as sp
        >>> sp.check_laws("alibi").honest
        True
    """
    require_type(seed, int, "seed", "a whole number")
    if is_encoding_class(encoding):
        encoding = encoding.Config()
    if isinstance(encoding, str):
        encoding = parse_encoding(encoding)
    if isinstance(encoding, EncodingConfig):
        sizes = Sizes()
        encoding = encoding.fitted(**asdict(sizes)).build()
    elif isinstance(encoding, Encoding):
        sizes = _sizes_of(encoding)
    else:
        raise ConfigError(
            f"check_laws takes an encoding, its class, configuration or name; got {encoding!r}."
        )
    name = getattr(encoding.config, "kind", type(encoding).__name__)
    cls = type(encoding)
    if digest_of(cls) is None:
        return Laws(name, tuple(checks_of(encoding, sizes, seed)))
    return Laws(name, tuple(attempted(place_of(cls), lambda: checks_of(encoding, sizes, seed))))


def _sizes_of(encoding: Encoding) -> Sizes:
    """The smallest model that an encoding, built already, fits."""
    usual = Sizes()
    own = {name: getattr(encoding.config, name, value) for name, value in asdict(usual).items()}
    return Sizes(**own)
