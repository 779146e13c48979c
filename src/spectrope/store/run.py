"""Run folders: a configuration, tables, tensors, and a manifest that is written last."""

import contextlib
import errno
import json
import os
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
from polars.exceptions import PanicException, PolarsError
from safetensors import SafetensorError, safe_open

from spectrope.core import Stop, StoreError, config_hash, never, require_type
from spectrope.store.card import as_card, as_line
from spectrope.store.digests import digest_file, remove, verify, write_verified
from spectrope.store.errors import disk_errors
from spectrope.store.facts import require_facts
from spectrope.store.files import (
    files_of,
    is_temporary,
    json_content,
    make_folder,
    move_aside,
    parquet_content,
    read_file,
    read_json,
    require_file,
    require_text,
    sweep_temporaries,
)
from spectrope.store.locks import held
from spectrope.store.numbering import counts_from_zero, renumbered

if TYPE_CHECKING:
    import torch  # Reading tables does without it; only tensors need it.

RESULTS_VERSION = 1  # Raised only when the same configuration gives other results.
CONFIG, MANIFEST = "config.json", "manifest.json"
LASTING = ("metrics.parquet", "progress.parquet", "weights.safetensors")  # As training writes them.
LOCK = ".lock"  # Held while a run is trained or measured.
_HELD: ContextVar[frozenset[Path]] = ContextVar("held", default=frozenset())  # Folders locked further up.
SET_ASIDE = ".damaged"  # Beside run folders; folders that begin with a dot are no runs.


@dataclass(frozen=True, repr=False)
class Run:
    """One run's folder, named by the hash of its configuration; without a manifest it is unfinished.

    Args:
        path: The folder.

    Example:
        >>> import spectrope as sp
        >>> run = sp.train("rope", epochs=1, n_examples=60, watch=sp.unwatched)
        >>> run.config["encoding_name"], run.finished, run.has_frame("metrics")
        ('rope', True, True)
    """

    path: Path

    def __repr__(self) -> str:
        return as_line(self)

    def _repr_html_(self) -> str:
        return as_card(self)

    @property
    def id(self) -> str:
        """The folder's name: twelve hexadecimal digits."""
        return self.path.name

    @property
    def config(self) -> dict[str, Any]:
        """The configuration of the run.

        Raises:
            StoreError: If the folder is not a run of this version, or damaged.
        """
        return _identity(self.path)["config"]

    @property
    def finished(self) -> bool:
        """Whether the manifest has been written."""
        return (self.path / MANIFEST).exists()

    @property
    def manifest(self) -> dict[str, Any]:
        """Final scores, time, commit and machine.

        Raises:
            StoreError: If the run is unfinished or its manifest damaged.
        """
        if not self.finished:
            raise StoreError(f"run {self.id} is unfinished; the command that started it resumes it.")
        manifest = read_json(self.path / MANIFEST)
        self._verify(self.path / MANIFEST)
        require_facts(self.path / MANIFEST, manifest)
        return manifest

    def finish(self, manifest: Mapping[str, Any]) -> None:
        """Write the manifest, after everything else."""
        write_verified(self.path / MANIFEST, json_content({"run": self.id, **manifest}))

    @property
    def frames(self) -> list[str]:
        """Names of the tables that have been written."""
        return [path.stem for path in files_of(self.path, ".parquet")]

    def has_frame(self, name: str) -> bool:
        """Whether a table of that name has been written."""
        return self._frame(name).exists()

    def write_frame(self, name: str, frame: pl.DataFrame) -> None:
        """Write a table, whole or not at all.

        Raises:
            StoreError: If the disk is full, read-only or forbidden; the previous content stays.
        """
        write_verified(self._frame(name), parquet_content(frame))

    def frame(self, name: str) -> pl.DataFrame:
        """Read a table; layers and heads are numbered from 0, also in older tables that were written with
        numbers from 1.

        Raises:
            StoreError: If it is missing or damaged.
        """
        path = self._frame(name)
        if not self.has_frame(name):
            raise StoreError(f"run {self.id} has no table {name!r}; {self._names('parquet')}")
        self._verify(path)
        with _damage(path):
            table, metadata = pl.read_parquet(path), pl.read_parquet_metadata(path)
        return table if counts_from_zero(metadata) else renumbered(table)

    def has_tensors(self, name: str) -> bool:
        """Whether tensors of that name have been written."""
        return self._tensors(name).exists()

    def write_tensors(
        self, name: str, tensors: Mapping[str, "torch.Tensor"], metadata: Mapping[str, str]
    ) -> None:
        """Write tensors and their metadata as one safetensors file, whole or not at all.

        Raises:
            StoreError: If the disk is full, read-only or forbidden; what was there before stays.
        """
        from safetensors.torch import save

        # Copies, since the format refuses tensors that share memory, as layers may share an encoding.
        plain = {key: tensor.detach().to("cpu", copy=True).contiguous() for key, tensor in tensors.items()}
        # Formatted in memory first: the format's own writer hides why a disk refuses.
        write_verified(self._tensors(name), save(plain, dict(metadata)))

    def read_tensors(self, name: str) -> tuple[dict[str, "torch.Tensor"], dict[str, str]]:
        """Read tensors, on the CPU, and their metadata.

        Raises:
            StoreError: If they are missing or damaged.
        """
        if not self.has_tensors(name):
            raise StoreError(f"run {self.id} has no tensors {name!r}; {self._names('safetensors')}")
        self._verify(self._tensors(name))
        with _damage(self._tensors(name)), safe_open(self._tensors(name), framework="pt") as file:
            return {key: file.get_tensor(key) for key in file.keys()}, file.metadata() or {}  # noqa: SIM118

    def take_over(self, other: "Run") -> None:
        """Copy all tables and tensors of a finished run, the manifest last, to another id of the same run.

        Raises:
            StoreError: If the other is unfinished, or a file cannot be copied.
        """
        manifest = other.manifest
        for source in files_of(other.path, ".parquet", ".safetensors"):
            other._verify(source)
            write_verified(self.path / source.name, read_file(source))
        self.finish({**manifest, "run": self.id, "copied_from": other.id})

    def require_writable(self) -> None:
        """Refuse a run whose folder is forbidden, before anything is computed for it.

        Raises:
            StoreError: If the folder cannot be written.
        """
        with disk_errors(self.path):
            _require_permission(self.path)

    def remove(self, name: str) -> None:
        """Remove tensors or a table, where there are any."""
        remove(self._tensors(name))
        remove(self._frame(name))

    @contextlib.contextmanager
    def lock(self, stop: Stop = never) -> Iterator[None]:
        """Hold the lock of this run while the block runs; wait while another process holds it.

        It ends with the process that holds it. Where the file system has no locks, nothing is waited for. A
        block inside one that holds it goes on.

        Args:
            stop: Called while waiting.

        Raises:
            Interrupted: If asked to stop while waiting.
            StoreError: If the folder cannot be written.
        """
        mine, place = _HELD.get(), self.path.resolve()
        if place in mine:
            yield
            return
        with held(self.path / LOCK, f"run {self.id}", stop):
            token = _HELD.set(mine | {place})
            try:
                yield
            finally:
                _HELD.reset(token)

    def set_tensors_aside(self, name: str) -> Path:
        """Move damaged tensors into `.damaged` beside the run's folder, and return their new path.

        Raises:
            StoreError: If they cannot be moved.
        """
        path = self._tensors(name)
        target = move_aside(path, self.path.parent / SET_ASIDE, f"{self.id}-{path.name}")
        remove(path)  # The digest is left.
        return target

    def verify(self) -> bool:
        """Check every file against its digest and the folder's name against the configuration.

        Returns:
            Whether all files have a digest; those of folders of version 0.1.0 have none.

        Raises:
            StoreError: Naming the first file that is damaged, or the first of `LASTING` that is lost.
        """
        _identity(self.path)
        for path in (self.path / name for name in LASTING) if self.finished else ():
            if digest_file(path).exists() and not path.exists():
                raise StoreError(f"{path} is lost; move its folder away and run it again.")
        files = files_of(self.path, ".json", ".parquet", ".safetensors")
        verified = [self._verify(path) for path in files if path.exists()]  # Checkpoints come and go.
        return all(verified)

    def _verify(self, path: Path) -> bool:
        """Whether a file has a digest, which it then matches.

        Raises:
            StoreError: If it is damaged, or has no digest in a run that was begun with digests.
        """
        require_file(path)
        verified = verify(path)
        if not verified and digest_file(self.path / CONFIG).exists():
            raise StoreError(
                f"{path} is damaged: it has lost its digest; move its folder away and run it again."
            )
        return verified

    def _frame(self, name: str) -> Path:
        return self.path / f"{name}.parquet"

    def _tensors(self, name: str) -> Path:
        return self.path / f"{name}.safetensors"

    def _names(self, suffix: str) -> str:
        names = [path.stem for path in files_of(self.path, f".{suffix}")]
        return f"it has {', '.join(names)}." if names else "it has none."


def open_run(root: Path, config: Mapping[str, Any], data_version: int) -> Run:
    """The run folder of a configuration under `root`, made if it is missing.

    Args:
        root: Folder of the run folders.
        config: JSON-ready configuration.
        data_version: Version of the generated data; another one means another run.

    Raises:
        StoreError: If the folder cannot be written, or is not the run that its name says.
    """
    path = root / config_hash(dict(config), data_version, RESULTS_VERSION)
    require_text(path)
    identity = {"config": dict(config), "data_version": data_version, "results_version": RESULTS_VERSION}
    identity = json.loads(json.dumps(identity))
    make_folder(path)
    sweep_temporaries(path)
    if not (path / CONFIG).exists():
        begun = {path / LOCK, digest_file(path / CONFIG)}
        others = [one for one in path.iterdir() if not (is_temporary(one) or one in begun)]
        if others and not (path / CONFIG).exists():  # Which another process may have made since.
            raise StoreError(f"{path} holds files but no {CONFIG}, so it is no run; move it away.")
        write_verified(path / CONFIG, json_content(identity))
    _identity(path)
    return Run(path)


def load_run(path: str | Path) -> Run:
    """The run in a folder.

    Raises:
        StoreError: If the folder is missing, not a run, of another version, or one of its files is cut off.

    Example:
        >>> import spectrope as sp
        >>> run = sp.train("rope", epochs=1, n_examples=60, watch=sp.unwatched)
        >>> sp.load_run(run.path) == run
        True
    """
    require_type(path, (str, Path), "path", "the path of a run folder")
    path = Path(path)
    require_text(path)
    with disk_errors(path, "read"):
        if not path.is_dir():
            raise StoreError(f"{path} is not a folder.")
        run = Run(path)
        _identity(path)
        if run.finished:
            _ = run.manifest
        _check_files(path)
    return run


def check_place(path: Path) -> None:
    """Refuse an output path that cannot or should not be written, before anything is computed.

    Raises:
        StoreError: If it is a folder, lies in a run's folder, or its folder cannot be created or written.
    """
    with disk_errors(path):
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, "")
        for folder in path.resolve().parents:
            if _is_identity(folder / CONFIG):
                raise StoreError(
                    f"cannot write {path}: {folder} is the folder of a run; choose another place."
                )
        nearest = next(folder for folder in path.resolve().parents if folder.exists())
        if not nearest.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, "")
        _require_permission(nearest)


def _require_permission(folder: Path) -> None:
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, "")


def _is_identity(path: Path) -> bool:
    """Whether a file says what a run was made for; a checkpoint's config.json does not."""
    try:
        return path.is_file() and "results_version" in read_json(path)
    except StoreError:
        return False


def _identity(path: Path) -> dict[str, Any]:
    if not (path / CONFIG).exists():
        raise StoreError(f"{path} is no run: it has no {CONFIG}.")
    identity = read_json(path / CONFIG)
    if not isinstance(identity.get("config"), dict) or "results_version" not in identity:
        raise StoreError(f"{path} is no run: its {CONFIG} describes none.")
    if identity["results_version"] != RESULTS_VERSION:
        version = identity["results_version"]
        raise StoreError(f"{path} has results of version {version}, not {RESULTS_VERSION}; run it again.")
    verify(path / CONFIG)
    try:
        name = config_hash(identity["config"], identity.get("data_version"), RESULTS_VERSION)
    except (ValueError, RecursionError):  # Numbers that JSON has no word for, lone surrogates.
        raise StoreError(f"{path} is no run: its {CONFIG} describes none.") from None
    if name != path.resolve().name:
        raise StoreError(
            f"{path} has the configuration of run {name}; rename the folder to {name}, or move it away."
        )
    return identity


def _check_files(path: Path) -> None:
    """Refuse tables and tensors that are truncated or no regular files, without reading their values."""
    for file in path.iterdir():
        if not (is_temporary(file) or file.name == LOCK):
            require_file(file)
    # A process that trains the run may remove one of them meanwhile.
    for table in files_of(path, ".parquet"):
        with _damage(table), contextlib.suppress(FileNotFoundError):
            pl.read_parquet_schema(table)
    for tensors in files_of(path, ".safetensors"):
        with _damage(tensors), contextlib.suppress(FileNotFoundError), safe_open(tensors, framework="numpy"):
            pass


@contextlib.contextmanager
def _damage(path: Path) -> Iterator[None]:
    try:
        yield
    except (PolarsError, PanicException, SafetensorError, OSError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        raise StoreError(f"{path} is damaged: {reason}; move its folder away and run it again.") from None
