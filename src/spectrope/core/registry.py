"""Registries: each family of named things is found by looking in its package and in installed plug-ins."""

import importlib
import pkgutil
from collections.abc import Iterator
from importlib.metadata import entry_points
from typing import Any, Generic, TypeVar

from spectrope.core.errors import ConfigError, UnknownNameError

Member = TypeVar("Member")


class Registry(Generic[Member]):
    """The members of one family by name, such as encodings or tasks.

    Every module of `package` is imported when a name is first looked up that is not registered yet, and so is
    every module that an installed distribution names in the entry point group called like the package. The
    applications of this package join the library's families in that way, as do other people's packages.

    Args:
        what: What the family is called in messages, such as "encoding".
        package: Dotted name of the package whose modules register the members.
    """

    def __init__(self, what: str, package: str) -> None:
        self.what, self.package = what, package
        self._members: dict[str, Member] = {}
        self._complete = self._discovering = False

    def register(self, name: str, member: Member) -> None:
        """Enter a member under `name`; the dataclass of a class (itself, or its `Config`) gets it as `kind`.

        Raises:
            ConfigError: If another member has the name.
        """
        if not str(getattr(member, "__module__", "")).startswith(f"{self.package}."):
            self._discover()  # Names of the package's own take precedence.
        holder = self._members.get(name)
        if holder is not None and _origin(holder) != _origin(member):
            owner = ".".join(map(str, _origin(holder)))
            raise ConfigError(f"{self.what} {name!r} is {owner} already; choose another name.")
        self._members[name] = member
        if isinstance(member, type):
            self.config_of(member).kind = name  # pyright: ignore[reportAttributeAccessIssue]

    @staticmethod
    def config_of(member: type) -> type:
        """The frozen dataclass that describes a class: its nested `Config`, or the class itself."""
        return getattr(member, "Config", member)

    def config(self, name: str) -> type:
        """The configuration class of the member called `name`."""
        member: Any = self[name]
        return self.config_of(member)

    def __getitem__(self, name: str) -> Member:
        if name not in self._members:
            self._discover()
        if name not in self._members:
            raise UnknownNameError(self.what, name, self._members)
        return self._members[name]

    def __contains__(self, name: object) -> bool:
        self._discover()
        return name in self._members

    def __iter__(self) -> Iterator[str]:
        self._discover()
        return iter(sorted(self._members))

    def __len__(self) -> int:
        self._discover()
        return len(self._members)

    def _discover(self) -> None:
        if self._complete or self._discovering:
            return
        self._discovering = True
        try:
            package = importlib.import_module(self.package)
            for module in pkgutil.iter_modules(package.__path__):
                importlib.import_module(f"{self.package}.{module.name}")
            for plugin in entry_points(group=self.package):
                plugin.load()
            self._complete = True
        finally:
            self._discovering = False


def _origin(member: object) -> tuple[object, object]:
    """Where a class is defined, so that one that is imported anew replaces itself; an object is its own."""
    if isinstance(member, type):
        return member.__module__, member.__qualname__
    return type(member).__qualname__, id(member)
