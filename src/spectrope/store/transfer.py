"""Pack finished run folders, to send them between machines."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from spectrope.store.digests import write_verified
from spectrope.store.errors import disk_errors
from spectrope.store.files import files_of, make_folder, read_file
from spectrope.store.run import MANIFEST, Run, load_run

SUFFIXES = (".json", ".parquet", ".safetensors")


@dataclass(frozen=True)
class PackedRun:
    """The files of a finished run.

    Args:
        id: The run's id, which is its folder's name.
        files: The content of each file by its name, the manifest last.
    """

    id: str
    files: Mapping[str, bytes]


def packed(run: Run) -> PackedRun:
    """Read all files of a finished run.

    Raises:
        StoreError: If the run is unfinished, or a file is damaged or cannot be read.
    """
    _ = run.manifest  # Only finished runs have one.
    run.verify()
    with disk_errors(run.path, "read"):
        ordered = sorted(files_of(run.path, *SUFFIXES), key=lambda path: path.name == MANIFEST)
        return PackedRun(run.id, {path.name: read_file(path) for path in ordered})


def unpacked(folder: PackedRun, root: Path) -> Run:
    """Write the files of a run under `root`; files that already have the same content stay.

    Raises:
        StoreError: If a file cannot be written.
    """
    path = root / folder.id
    make_folder(path)
    for name, content in folder.files.items():
        file = path / name
        with disk_errors(file, "read"):
            same = file.exists() and file.read_bytes() == content
        if not same:
            write_verified(file, content)
    return load_run(path)
