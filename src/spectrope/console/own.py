"""User-defined encodings and tasks on the command line, loaded from files and tested before training."""

from math import isfinite
from typing import Annotated, Any, Protocol, runtime_checkable

import tyro

from spectrope.attention import ATTENTIONS
from spectrope.console.rare import RARE
from spectrope.console.terminal import table
from spectrope.core import (
    Registry,
    attempted,
    digest_of,
    is_foreign,
    load_object,
    place_of,
)
from spectrope.encodings import ENCODINGS, EncodingConfig, LawCheck, Sizes, laws_of
from spectrope.tasks import TASKS, Task, TaskConfig, check_task

Own = Annotated[
    tuple[str, ...],
    tyro.conf.UseAppendAction,
    tyro.conf.arg(
        metavar="FILE:CLASS",
        help="User-defined encoding or task of the run. The file is executed.",
    ),
    RARE,
]


def named(spec: str) -> str:
    """The name of a registered encoding, or of a class in a file, which is executed.

    Args:
        spec: Such as rope, file.py:Class or mla+file.py:Class.
    """
    attention, plus, encoding = spec.partition("+")
    if plus and attention in ATTENTIONS:
        return f"{attention}+{named(encoding)}"
    return ENCODINGS.resolve(spec) if is_foreign(spec) else spec


def resolve_own(spec: str) -> tuple[Registry[Any], str]:
    """The registry and the name of an encoding or a task in a file, which is executed.

    Raises:
        ConfigError: If the file cannot be executed, or does not define the class.
    """
    member = load_object(spec)
    is_task = isinstance(member, type) and issubclass(member, Task)
    registry: Registry[Any] = TASKS if is_task else ENCODINGS
    return registry, registry.resolve(spec)


@runtime_checkable
class HasHeads(Protocol):
    """Protocol of a model configuration with an encoding and sizes of heads."""

    @property
    def encoding(self) -> EncodingConfig: ...
    @property
    def d_model(self) -> int: ...
    @property
    def n_heads(self) -> int: ...
    @property
    def head_dim(self) -> int: ...
    @property
    def causal(self) -> bool: ...


def try_own(model: HasHeads) -> None:
    """Test the laws of a user-defined encoding, and print the results; do nothing for other encodings.

    Args:
        model: Configuration of the model, with whose sizes the encoding is tested.

    Raises:
        ConfigError: If the encoding fails, with the line of the file.
    """
    name = model.encoding.kind
    member = ENCODINGS[name]
    if digest_of(member) is None:
        return
    sizes = Sizes(d_model=model.d_model, n_heads=model.n_heads, head_dim=model.head_dim, causal=model.causal)
    spec = place_of(member)
    checks = attempted(spec, lambda: laws_of(name, sizes))
    rows = [
        (
            check.law.name.lower().replace("_", " "),
            "declared" if check.declared else "not declared",
            _measured(check),
            check.note,
        )
        for check in checks
    ]
    table(
        f"{name}, from {spec}, tested on {sizes.tried_on}", ("law", "declaration", "measured", "note"), rows
    )


def _measured(check: LawCheck) -> str:
    if check.holds or not check.is_known:
        return "holds" if check.holds else "cannot tell"
    size = f", relative error {check.widened_error:.1e}" if isfinite(check.widened_error) else ""
    return f"does not hold{size}"


def try_task(config: TaskConfig) -> None:
    """Check a user-defined task by drawing and solving some examples; do nothing for other tasks.

    Raises:
        ConfigError: If it fails, with the line of the file, or breaks a rule of tasks.
    """
    if digest_of(TASKS[config.kind]) is not None:
        attempted(f"task {config.kind!r}", lambda: check_task(config.build()))
