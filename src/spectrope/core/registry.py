"""Registries of named classes, discovered in a package and in installed plug-ins."""

import importlib
import pkgutil
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import entry_points
from typing import Any, ClassVar, Generic, TypeVar

from spectrope.core.errors import ConfigError, SpectropeWarning, UnknownNameError, require_type
from spectrope.core.foreign import digest_of, is_foreign, load_object, reason

Member = TypeVar("Member")


class Registry(Generic[Member]):
    """The members of one family by name, such as encodings or tasks.

    Names match without regard to case, hyphens and underscores: "RoPE", "per-head".

    When a name is looked up that is not registered yet, every module of `package` is imported, and so is
    every module that an installed distribution names in the entry point group `group`. The applications of
    this package and third-party packages add members in this way.

    Args:
        what: Name of the family in messages, such as "encoding".
        package: Dotted name of the package whose modules register the members, or of a single module.
        base: Name of the class from which user-defined members derive, such as "Encoding".
        group: Name of the entry point group (default: that of the package).

    Example:
        >>> import spectrope as sp
        >>> sp.ENCODINGS["RoPE"] is sp.encodings.RoPE, "rop" in sp.ENCODINGS
        (True, False)
    """

    def __init__(self, what: str, package: str, base: str = "", group: str = "") -> None:
        self.what, self.package, self.base, self.group = what, package, base, group or package
        self._members: dict[str, Member] = {}
        self._reserved: dict[str, str] = {}
        self._imported = self._loaded = False

    def register(self, name: str, member: Member) -> None:
        """Enter a member under `name`; the dataclass of a class (itself, or its `Config`) gets it as `kind`.

        Raises:
            ConfigError: If the name or another spelling of it is taken, or could not be part of a file name.
        """
        if re.fullmatch(r"\w[\w-]*", name) is None:
            raise ConfigError(f"{self.what} {name!r}: a name may only contain letters, digits, '-' and '_'.")
        if not f"{getattr(member, '__module__', '')}.".startswith(f"{self.package}."):
            self._discover()  # Names of the package's own take precedence.
        if purpose := self._reserved.get(_folded(name)):
            raise ConfigError(f"{self.what} {name!r} is {purpose} already; choose another name.")
        written = self._written_as(name)
        holder = self._members.get(written)
        if holder is not None and (written != name or _origin(holder) != _origin(member)):
            owner = ".".join(map(str, _origin(holder)))
            raise ConfigError(f"{self.what} {name!r} is {owner} already; choose another name.")
        self._members[name] = member
        if isinstance(member, type):
            self.config_of(member).kind = name  # pyright: ignore[reportAttributeAccessIssue]

    def reserve(self, name: str, purpose: str) -> None:
        """Keep a name from members, because it stands for something else.

        Args:
            name: The name, in any spelling.
            purpose: What it stands for, to follow the word "is" in a message.
        """
        self._reserved[_folded(name)] = purpose

    @staticmethod
    def config_of(member: type) -> type:
        """The frozen dataclass that describes a class: its nested `Config`, or the class itself."""
        return getattr(member, "Config", member)

    def config(self, name: str) -> type:
        """The configuration class of the member called `name`."""
        member: Any = self[name]
        return self.config_of(member)

    def resolve(self, spec: str) -> str:
        """The name of a registered member, or of a class in a file (`file.py:Class`), which is executed.

        Raises:
            UnknownNameError: If no member has that name.
            ConfigError: If the file cannot be run, or its class is not registered here or has fields without
                defaults.
        """
        require_type(spec, str, f"the name of {self._article} {self.what}", "text")
        if not is_foreign(spec):
            _ = self[spec]
            return self._written_as(spec)
        member: Any = load_object(spec)
        if not isinstance(member, type):
            raise ConfigError(f"{spec} is not a class that derives from {self.base}.")
        self.default(member, spec)
        return self.name_of(member)

    def default(self, member: type, called: str = "") -> Any:
        """The configuration of a registered class with its defaults.

        Args:
            member: The class.
            called: What messages call it (default: its own name).

        Raises:
            ConfigError: If it is not registered, is abstract, or has fields without defaults.
        """
        called = called or member.__name__
        self.name_of(member)
        try:
            return self.config_of(member)()
        except TypeError as error:
            if missing := sorted(getattr(member, "__abstractmethods__", ())):
                lacks = f"defines no {' and no '.join(missing)}"
                raise ConfigError(f"{called} {lacks}, which every {self.what} has.") from None
            raise ConfigError(f"{called}: every field needs a default; {reason(error)}.") from None

    def name_of(self, member: type) -> str:
        """The name under which a class is registered.

        Raises:
            ConfigError: If it is not.
        """
        kind = getattr(self.config_of(member), "kind", None)
        if kind is None or kind not in self or self[kind] is not member:
            declared = f'`class {member.__name__}({self.base}, name="...")`'
            raise ConfigError(
                f"{member.__name__} is not registered as {self.what}; declare it as {declared}."
            )
        return kind

    def digests(self, config: Any) -> dict[str, str]:
        """Digests of the members from user files that a configuration names at any depth, by name.

        Digests are part of a run's identity, because an edited file defines another member of the same name.
        """
        of_kind = self._digest(config.get("kind")) if isinstance(config, Mapping) else {}
        values = config.values() if isinstance(config, Mapping) else config
        inner = values if isinstance(values, Iterable) and not isinstance(values, str) else ()
        return of_kind | {name: digest for value in inner for name, digest in self.digests(value).items()}

    def require_digests(self, digests: Mapping[str, str]) -> None:
        """Refuse members from files that have not been run, or have been edited since.

        Raises:
            ConfigError: If one of them is missing or has changed.
        """
        for name, digest in digests.items():
            known = self._digest(name).get(name)
            if known is None:
                raise ConfigError(
                    f"{self.what} {name!r} comes from a file, which is only executed on request; pass "
                    "--own path/to/file.py:ClassName, or in Python call "
                    f"`{self.what.upper()}S.resolve` with it or define the class again."
                )
            if known != digest:
                raise ConfigError(
                    f"the file of {self.what} {name!r} has changed since the run was trained: its digest is "
                    f"{known} instead of {digest}; train again, or restore the file."
                )

    def _digest(self, kind: Any) -> dict[str, str]:
        member = self._members.get(kind) if isinstance(kind, str) else None
        digest = None if member is None else digest_of(member)
        return {} if digest is None else {kind: digest}

    def __getitem__(self, name: str) -> Member:
        require_type(name, str, f"the name of {self._article} {self.what}", "text")
        for more in (self._import_modules, self._load_plugins):  # No more than it takes.
            if name not in self._members:
                more()
        if (written := self._written_as(name)) not in self._members:
            raise UnknownNameError(self.what, name, self._members)
        return self._members[written]

    def __contains__(self, name: object) -> bool:
        self._discover()
        return isinstance(name, str) and self._written_as(name) in self._members

    def __iter__(self) -> Iterator[str]:
        self._discover()
        return iter(sorted(self._members))

    def __len__(self) -> int:
        self._discover()
        return len(self._members)

    def __repr__(self) -> str:
        return f"{len(self)} of the kind {self.what!r}: {', '.join(self)}"

    @property
    def _article(self) -> str:
        return "an" if self.what[0] in "aeiou" else "a"

    def _written_as(self, name: str) -> str:
        """The registered name that differs from this one in case, hyphens and underscores alone, if any."""
        if name in self._members:
            return name
        return next((known for known in self._members if _folded(known) == _folded(name)), name)

    def _discover(self) -> None:
        """Import the package's modules and all plug-ins, once."""
        self._import_modules()
        self._load_plugins()

    def _import_modules(self) -> None:
        if self._imported:
            return
        self._imported = True  # Modules register members while they are imported.
        try:
            package = importlib.import_module(self.package)
            for module in pkgutil.iter_modules(getattr(package, "__path__", ())):
                importlib.import_module(f"{self.package}.{module.name}")
        except BaseException:
            self._imported = False  # The next lookup fails by the same error, not by an unknown name.
            raise

    def _load_plugins(self) -> None:
        if self._loaded:
            return
        self._loaded = True
        for plugin in entry_points(group=self.group):
            try:
                plugin.load()
            except (Exception, SystemExit) as error:  # Code of others may raise anything.
                if owner_of(plugin) == "spectrope":
                    raise
                warnings.warn(
                    f"{plugin.value}, a plug-in of {owner_of(plugin)}, cannot be loaded: {reason(error)}. "
                    f"Some or all of what it adds to the kind {self.what!r} is missing.",
                    SpectropeWarning,
                    stacklevel=2,
                )


class Registered:
    """Base of classes that enter a registry by their class statement: `class Mute(Fill, name="mute")`."""

    registry: ClassVar[Registry[Any]]

    def __init_subclass__(cls, *, name: str | None = None, **kwargs: Any) -> None:
        """Register the class under `name`; without one it is a base for others."""
        super().__init_subclass__(**kwargs)
        if name is not None:
            cls.registry.register(name, cls)


def owner_of(plugin: Any) -> str:
    """The name of the distribution that has an entry point, of `importlib.metadata` or of its backport."""
    return plugin.dist.name if plugin.dist is not None else "an unknown distribution"


def _folded(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")


def _origin(member: object) -> tuple[object, object]:
    """Where a class or function is defined, so that reimporting it replaces the earlier one."""
    return getattr(member, "__module__", ""), getattr(member, "__qualname__", id(member))
