"""Encodings by name or from a file, and which laws they keep."""

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
    """The laws of one encoding: what it declares beside what was measured.

    Args:
        encoding: What it is called.
        checks: One per law.
    """

    encoding: str
    checks: tuple[LawCheck, ...]

    @property
    def honest(self) -> bool:
        """Whether every declared law holds, and every other one is broken."""
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
    """An encoding by its registered name, or from a file of your own, which is run.

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
    """Try which laws an encoding keeps, and whether its `tags` declare just these.

    Each law is tried on random contents, as the encoding is and with everything that it computes in float32
    widened to float64, so that rounding is not taken for a violation. `spectrope.encodings.Tag` says what the
    laws are.

    Args:
        encoding: A name, `path/to/file.py:Class`, a class, a configuration, or an encoding. All but the last
            are built for a small model; the last must fit one with heads as wide as its own configuration
            says.
        seed: Names the contents.

    Raises:
        UnknownNameError: If no encoding has that name.
        ConfigError: If it is none of these, or one of your own that fails.

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
