"""Write certificates: a claim, its witness and the hashes of its inputs, as one JSON file."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from spectrope.core import ConfigError, __version__
from spectrope.store.errors import disk_errors
from spectrope.store.files import write_output
from spectrope.store.run import check_place

FORMAT = "spectrope certificate 1"


@dataclass(frozen=True)
class Certified:
    """Content of a certificate, before it is written.

    Args:
        kind: Kind of the certificate.
        claim: The claim, JSON-ready.
        witness: Data that make the claim easy to check, JSON-ready.
    """

    kind: Literal["attention", "eigenvalues", "audit"]
    claim: Any
    witness: Any


def write_certificate(path: Path, certified: Certified, target: str, inputs: Iterable[Path] = ()) -> None:
    """Write a certificate, which `spectrope verify` checks.

    Args:
        path: File to write.
        certified: Its content.
        target: Its subject, in words.
        inputs: Files from which the claim was computed; their hashes are stored.

    Raises:
        ConfigError: If it contains a number that is not finite.
    """
    record: dict[str, Any] = {
        "format": FORMAT,
        "kind": certified.kind,
        "subject": {"target": target, "version": __version__},
        "inputs": [{"name": one.name, "sha256": _sha256(one)} for one in inputs],
        "claim": certified.claim,
        "witness": certified.witness,
    }
    try:
        sealed = json.dumps(record, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except ValueError:
        raise ConfigError(f"no certificate of {target} was written: a number of it is not finite.") from None
    record["digest"] = hashlib.sha256(sealed.encode()).hexdigest()
    write_output(path, json.dumps(record, separators=(",", ":")).encode())


def check_certificate(path: Path) -> None:
    """Refuse a place for a certificate that cannot be written, or that holds something else.

    Raises:
        ConfigError: If its suffix is not .json, or the file exists and is no certificate.
        StoreError: If it lies in a run's folder, or cannot be written or read.
    """
    if path.suffix.lower() != ".json":
        raise ConfigError(f"a certificate is saved as .json; got {path.name!r}.")
    check_place(path)
    if path.exists() and not _is_certificate(path):
        raise ConfigError(f"{path} exists and is no certificate, so it is not replaced; choose another name.")


def _is_certificate(path: Path) -> bool:
    """Whether a file holds one, of any version of the format."""
    with disk_errors(path, "read"):
        content = path.read_bytes()
    try:
        record = json.loads(content)
    except (ValueError, RecursionError):
        return False
    return isinstance(record, dict) and str(record.get("format")).startswith(FORMAT.rstrip("0123456789"))


def weights_and_config(folder: Path) -> list[Path]:
    """The files of a checkpoint or a run that determine what it computes: its configuration and that of an
    adapter, their weights with an index, and code of its own."""
    patterns = ("config.json", "adapter_config.json", "*.safetensors", "*_model*.bin", "*.index.json", "*.py")
    return [path for pattern in patterns for path in sorted(folder.glob(pattern))]


def _sha256(path: Path) -> str:
    with disk_errors(path, "read"), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
