"""Find runs in a folder, and resolve their names."""

from pathlib import Path

from spectrope.core import StoreError
from spectrope.store.errors import disk_errors
from spectrope.store.files import printable, require_text
from spectrope.store.run import CONFIG, Run, load_run

NAMED = 6  # Runs named in a message at most.


def find_runs(root: str | Path) -> list[Run]:
    """The readable runs under `root`, by name; `survey` also lists the others.

    Raises:
        StoreError: If `root` is no folder or cannot be read.
    """
    return survey(root)[0]


def survey(root: str | Path) -> tuple[list[Run], list[tuple[Path, str]]]:
    """The readable runs under `root`, by name, and every other folder with the reason why it cannot be read.

    Raises:
        StoreError: If `root` is no folder or cannot be read.
    """
    root = Path(root)
    require_text(root)
    if not root.is_dir():
        raise StoreError(f"{root} is not a folder; compare and train make one.")
    with disk_errors(root, "read"):
        folders = sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))
    runs: list[Run] = []
    broken: list[tuple[Path, str]] = []
    for path in folders:
        try:
            runs.append(load_run(path))
        except StoreError as error:
            broken.append((Path(printable(path)), str(error)))
    return runs, broken


def resolve_run(root: Path, name: str) -> Run:
    """The run that a path, an id, or the beginning of one id under `root` names.

    Raises:
        StoreError: If none or several match, or the run cannot be read.
    """
    with disk_errors(Path(name), "read"):
        is_run, is_folder = (Path(name) / CONFIG).exists(), Path(name).is_dir()
    if is_run:
        return load_run(Path(name))
    with disk_errors(root, "read"):
        folders = sorted(path for path in root.iterdir() if path.is_dir()) if root.is_dir() else []
    matches = [path for path in folders if name and path.name.startswith(name)]
    if not matches and name and is_folder:
        return load_run(Path(name))
    if not matches:
        held = ", ".join(path.name for path in folders[:NAMED]) + (", ..." if len(folders) > NAMED else "")
        raise StoreError(f"no run {name!r} in {root}, which holds {held or 'none'}.")
    if len(matches) > 1 and matches[0].name != name:
        raise StoreError(f"{name!r} begins several runs: {', '.join(path.name for path in matches)}.")
    return load_run(matches[0])
