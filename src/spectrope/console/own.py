"""Encodings of the user's own on the command line: named by their file, and tried before they are trained."""

from typing import Annotated, Protocol, runtime_checkable

import tyro

from spectrope.attention.heads import ATTENTIONS
from spectrope.console.terminal import table
from spectrope.core.errors import ConfigError
from spectrope.core.foreign import blamed, is_foreign, loaded_files, reason
from spectrope.encodings.base import ENCODINGS, EncodingConfig
from spectrope.encodings.laws import Sizes, laws_of

Own = Annotated[
    str | None,
    tyro.conf.arg(
        help="file.py:Class, for a run whose encoding comes from a file of yours; the file is executed."
    ),
]


def named(spec: str) -> str:
    """The name of an encoding, registered or of a class in a file, which is run.

    Args:
        spec: Such as rope, file.py:Class or mla+file.py:Class.
    """
    attention, plus, encoding = spec.partition("+")
    if plus and attention in ATTENTIONS:
        return f"{attention}+{named(encoding)}"
    return ENCODINGS.resolve(spec) if is_foreign(spec) else spec


@runtime_checkable
class HasHeads(Protocol):
    """What is asked of a model's configuration: its encoding, and the sizes of its heads."""

    @property
    def encoding(self) -> EncodingConfig: ...
    @property
    def d_model(self) -> int: ...
    @property
    def n_heads(self) -> int: ...
    @property
    def head_dim(self) -> int: ...


def try_own(spec: str, model: HasHeads) -> None:
    """Print which laws of an encoding hold that comes from a file; of others none is printed.

    Args:
        spec: What the user calls it.
        model: In heads of whose sizes it is tried.

    Raises:
        ConfigError: If it fails there, with the line of the file.
    """
    if not is_foreign(spec):
        return
    name = model.encoding.kind
    sizes = Sizes(d_model=model.d_model, n_heads=model.n_heads, head_dim=model.head_dim)
    try:
        checks = laws_of(name, sizes)
    except Exception as error:
        told = blamed(error, loaded_files()) or reason(error)
        raise ConfigError(f"{spec} fails when it is tried: {told}.") from error
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
