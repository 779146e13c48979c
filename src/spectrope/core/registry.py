"""Names for things that come one per file: a class registers itself, its folder is found by looking."""

import importlib
import pkgutil
from collections.abc import Iterator
from typing import Generic, TypeVar

from spectrope.core.errors import ConfigError, UnknownNameError

T = TypeVar("T")


class Registry(Generic[T]):
    """The classes of one family by name, found in every module of `package` on first use.

    Args:
        what: What the family is called in messages, such as "encoding".
        package: Dotted name of the package whose modules register the classes.
    """

    def __init__(self, what: str, package: str) -> None:
        self.what, self.package = what, package
        self._classes: dict[str, type[T]] = {}
        self._complete = self._discovering = False

    def register(self, name: str, cls: type[T]) -> None:
        """Enter `cls` under `name`; its dataclass (itself, or its `Config`) learns the name as `kind`.

        Raises:
            ConfigError: If another class has the name.
        """
        if not cls.__module__.startswith(f"{self.package}."):  # names of the package's own come first
            self._discover()
        holder = self._classes.get(name)
        if holder is not None and (holder.__module__, holder.__qualname__) != (
            cls.__module__,
            cls.__qualname__,
        ):
            owner = f"{holder.__module__}.{holder.__qualname__}"
            raise ConfigError(f"{self.what} {name!r} is {owner} already; choose another name.")
        self._classes[name] = cls
        self.config_of(cls).kind = name  # pyright: ignore[reportAttributeAccessIssue]

    @staticmethod
    def config_of(member: type) -> type:
        """The frozen dataclass that describes a member: its nested `Config`, or the class itself."""
        return getattr(member, "Config", member)

    def config(self, name: str) -> type:
        """The configuration class of the member called `name`."""
        return self.config_of(self[name])

    def __getitem__(self, name: str) -> type[T]:
        self._discover()
        if name not in self._classes:
            raise UnknownNameError(self.what, name, self._classes)
        return self._classes[name]

    def __iter__(self) -> Iterator[str]:
        self._discover()
        return iter(sorted(self._classes))

    def __len__(self) -> int:
        self._discover()
        return len(self._classes)

    def _discover(self) -> None:
        if self._complete or self._discovering:
            return
        self._discovering = True
        try:
            package = importlib.import_module(self.package)
            for module in pkgutil.iter_modules(package.__path__):
                importlib.import_module(f"{self.package}.{module.name}")
            self._complete = True
        finally:
            self._discovering = False
