"""Encodings of the user's own on the command line: tried before anything is trained with them."""

from typing import Annotated

import tyro

from spectrope.cli.show import table
from spectrope.core.errors import ConfigError, SpectropeError
from spectrope.encodings.foreign import blamed, is_foreign, laws_of, load_encoding

Own = Annotated[
    str | None,
    tyro.conf.arg(help="file.py:Class of the run's encoding, where it comes from a file, which is run."),
]


def named(spec: str) -> str:
    """The name of a registered encoding, or of a class in a file, which is run."""
    return load_encoding(spec) if is_foreign(spec) else spec


def tried(spec: str) -> str:
    """The same; of a class in a file, print which of its declared laws hold.

    Raises:
        ConfigError: If it fails in a small model, with the line of the file.
    """
    if not is_foreign(spec):
        return spec
    name = load_encoding(spec)
    try:
        checks = laws_of(name)
    except SpectropeError:
        raise
    except Exception as error:
        file = spec.rpartition(":")[0]
        raise ConfigError(f"{spec} fails in a small model: {blamed(error, file)}.") from error
    rows = [
        (
            check.law.name.lower().replace("_", " "),
            "declared" if check.declared else "not declared",
            "holds" if check.holds else f"broken, error {check.error:.1e}",
            "" if check.honest else "the declaration is wrong",
        )
        for check in checks
    ]
    table(f"{name}, from {spec}", ("law", "declaration", "measured", "note"), rows)
    return name
