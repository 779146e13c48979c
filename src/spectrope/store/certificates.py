"""Certificates that others can check: a claim, its witness and hashes of its inputs, as one JSON file."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from spectrope.core import ConfigError, __version__
from spectrope.store.errors import disk_errors
from spectrope.store.files import replace_file

FORMAT = "spectrope certificate 1"


@dataclass(frozen=True)
class Certified:
    """What a certificate says, before it is written.

    Args:
        kind: Of the certificate.
        claim: What is stated, JSON-ready.
        witness: What makes it easy to check, JSON-ready.
    """

    kind: Literal["attention", "eigenvalues", "audit"]
    claim: Any
    witness: Any


def write_certificate(path: Path, certified: Certified, target: str, inputs: Iterable[Path] = ()) -> None:
    """Write a certificate, which `spectrope verify` checks.

    Args:
        path: The file.
        certified: What it says.
        target: What it is about, in words.
        inputs: Files that the claim was computed from, whose hashes it holds.

    Raises:
        ConfigError: If a number of it is not finite, so that it states nothing.
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
    content = json.dumps(record, separators=(",", ":")).encode()
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, lambda place: place.write_bytes(content))


def weights_and_config(folder: Path) -> list[Path]:
    """The files of a checkpoint that decide what it computes: its configuration and its weights."""
    return [*sorted(folder.glob("config.json")), *sorted(folder.glob("*.safetensors"))]


def _sha256(path: Path) -> str:
    with disk_errors(path, "read"), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
