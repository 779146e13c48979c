"""Locks as TOML files."""

import tomllib
from pathlib import Path
from typing import Any

import tomli_w

from spectrope.checkpoints.lock.records import FORMAT, Lock
from spectrope.core import ConfigError, from_dict, to_dict
from spectrope.store import require_file, write_output

FILE = "spectrope.lock"
HEAD = "# Written by `spectrope lock`. `spectrope check` compares the checkpoint with it.\n"
OPEN = {"gain": None, "pairing": None}  # Fields of a rotation without defaults that may be absent.


def write_lock(lock: Lock, path: str | Path = FILE) -> Path:
    """Write a lock as TOML; unknown values are omitted.

    Args:
        lock: What to write.
        path: The file.

    Raises:
        StoreError: If it cannot be written.
    """
    text = HEAD + tomli_w.dumps(_stated(to_dict(lock)))
    write_output(Path(path), text.encode())
    return Path(path)


def read_lock(path: str | Path = FILE) -> Lock:
    """Read a lock.

    Raises:
        StoreError: If there is no such file.
        ConfigError: If it is no lock, or of a format that this version does not read.
    """
    path = Path(path)
    if path.is_dir():
        raise ConfigError(f"{path} is a folder and no lock; `spectrope check --model {path}` compares it.")
    require_file(path)
    try:
        fields = tomllib.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError, OSError) as error:  # ValueError also for numbers of too many digits.
        raise ConfigError(f"{path} is not a lock: {error}.") from None
    if fields.get("format") != FORMAT:
        raise ConfigError(
            f"{path}: format must be {FORMAT}; got {fields.get('format')!r}. `spectrope lock` writes it anew."
        )
    try:
        return from_dict(Lock, _completed(fields))
    except ConfigError as error:
        raise ConfigError(f"{path}: {error} `spectrope lock` writes it anew.") from None


def line_of(path: Path, layer: str) -> int:
    """The line of a lock's file at which a layer stands; 1 where it is not found."""
    lines = path.read_text(encoding="utf-8").splitlines()
    wanted = f'name = "{layer}"'
    return next((number for number, line in enumerate(lines, 1) if line == wanted), 1)


def _stated(value: Any) -> Any:
    """Values without those that are not known, which TOML has no word for."""
    if isinstance(value, dict):
        return {key: _stated(one) for key, one in value.items() if one is not None}
    return [_stated(one) for one in value] if isinstance(value, list | tuple) else value


def _completed(fields: dict[str, Any]) -> dict[str, Any]:
    """Fields as they were written, with those of rotations that were not known."""
    layers = fields.get("layers")
    for layer in layers if isinstance(layers, list) else ():
        encoding = layer.get("encoding") if isinstance(layer, dict) else None
        turning = encoding.get("turning") if isinstance(encoding, dict) else None
        if isinstance(encoding, dict) and isinstance(turning, dict):
            encoding["turning"] = OPEN | turning
    return fields
