"""Errors that a user can fix; any other exception is a bug and keeps its traceback."""

import difflib
import reprlib
from collections.abc import Iterable


class SpectropeError(Exception):
    """Base of all errors that a user can fix; the command line prints one line and exits with 2.

    Example:
        >>> import spectrope as sp
        >>> for name in ("rope", "rotary"):
        ...     try:
        ...         print(sp.experiment("distance", name, epochs=1).label)
        ...     except sp.SpectropeError as error:
        ...         print("skipped:", type(error).__name__)
        distance/rope/seed 0
        skipped: UnknownNameError
    """


class SpectropeWarning(UserWarning):
    """Warning about a result that is returned nevertheless; the command line prints it as one line."""


class ConfigError(SpectropeError, ValueError):
    """A value that breaks a rule; also a `ValueError`.

    Example:
        >>> import spectrope as sp
        >>> try:
        ...     sp.experiment("distance", "rope", epochs=0)
        ... except sp.ConfigError as error:
        ...     print(error)
        TrainingConfig.epochs must be at least 1; got 0.
    """


class UnknownNameError(ConfigError):
    """A name that is not registered."""

    def __init__(self, what: str, name: str, known: Iterable[str]) -> None:
        known = sorted(set(known))
        self._parts = (what, name, known)
        near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(known)}."
        super().__init__(f"unknown {what} {name!r}; {hint}")

    def __reduce__(self) -> tuple[type, tuple[str, str, list[str]]]:
        """Rebuild from the parts, so that the error can be pickled in a worker process."""
        return type(self), self._parts


class UnsupportedError(SpectropeError):
    """A combination that an implementation cannot compute; it refuses rather than fall back silently.

    Example:
        >>> import spectrope as sp
        >>> plan = sp.experiment("distance", "sinusoidal", epochs=1, n_examples=60)
        >>> run = sp.train(plan.with_(n_layers=1, n_heads=4), watch=sp.unwatched)
        >>> try:
        ...     sp.atlas(run, watch=sp.unwatched)
        ... except sp.UnsupportedError as error:
        ...     print(str(error).partition(",")[0])
        Sinusoidal adds positions to the input
    """


class StoreError(SpectropeError):
    """A folder that cannot be read or written as a run.

    Example:
        >>> import spectrope as sp
        >>> try:
        ...     sp.load_run("nowhere")
        ... except sp.StoreError as error:
        ...     print(error)
        nowhere is not a folder.
    """


class DeviceError(SpectropeError):
    """A device that this machine does not offer."""


class Interrupted(SpectropeError):  # noqa: N818 (a request, not a mistake)
    """Work stopped at a safe point, with everything saved."""


class EnvironmentLostError(SpectropeError):
    """Processes or machines were lost while they worked; the command line exits with 4."""


def require_type(value: object, types: type | tuple[type, ...], where: str, rule: str) -> None:
    """Raise `ConfigError`, such as `experiment(epochs=...) must be a whole number; got '2'.`

    Args:
        value: The argument.
        types: Accepted types; bool does not count as a number.
        where: The function or parameter that received it.
        rule: The requirement, to follow the words "must be".

    Raises:
        ConfigError: If it is of another type.
    """
    if isinstance(value, bool) or not isinstance(value, types):
        raise ConfigError(f"{where} must be {rule}; got {reprlib.repr(value)}.")


def require(ok: bool, owner: object, field: str, rule: str, hint: str = "") -> None:
    """Raise `ConfigError`, such as `RoPE.Config.head_dim must be even; got 7. Rotary acts on pairs.`

    Args:
        ok: Whether the rule holds.
        owner: The object whose field is checked.
        field: Name of the field.
        rule: The requirement, to follow the words "must be".
        hint: How to fix it.

    Raises:
        ConfigError: If `ok` is false.
    """
    if not ok:
        where = f"{type(owner).__qualname__}.{field}"
        raise ConfigError(f"{where} must be {rule}; got {getattr(owner, field)!r}. {hint}".rstrip())


def require_least(owner: object, least: float, *fields: str) -> None:
    """Raise `ConfigError`, such as `Shaw.Config.head_dim must be at least 1; got 0.`

    Args:
        owner: The object whose fields are checked.
        least: Smallest permitted value.
        fields: Names of the fields.

    Raises:
        ConfigError: Naming the first that does.
    """
    for field in fields:
        value = getattr(owner, field)
        require(isinstance(value, int | float) and value >= least, owner, field, f"at least {least}")
