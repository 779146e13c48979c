"""Certificates of both extreme eigenvalues of an encoding's kernel."""

import hashlib
import struct
from typing import Any

import numpy as np
from scipy.linalg import eigh, toeplitz

from spectrope.core import ConfigError
from spectrope.lab.probes.kernel import EncodingKernel
from spectrope.store import Certified

LONGEST = 2048  # Positions up to which a certificate is written, and checked within a minute.
MARGIN = 1e-9  # Of the larger eigenvalue's modulus, on either side of a computed one.
DIGITS = 9  # Of a component of a unit vector; the quotient's error is of the order of their square.


def certified_kernel(kernel: EncodingKernel) -> Certified:
    """Intervals around both extreme eigenvalues, with trial vectors as their witness.

    Raises:
        ConfigError: If the kernel has too many positions.
    """
    entries, n = kernel.values.double().tolist(), kernel.operator.n
    if n > LONGEST:
        raise ConfigError(f"certificates of eigenvalues are written up to {LONGEST} positions; got {n}.")
    claim: dict[str, Any] = {
        "n": n,
        "entries_sha256": hashlib.sha256(struct.pack(f"<{n}d", *entries)).hexdigest(),
    }
    witness: dict[str, Any] = {"entries": entries}
    matrix = toeplitz(entries)
    found = {name: _extreme(matrix, place) for name, place in (("smallest", 0), ("largest", n - 1))}
    margin = MARGIN * max(abs(value) for value, _ in found.values()) + 1e-300
    for name, (value, vector) in found.items():
        claim[name] = [value - margin, value + margin]
        witness[name] = np.round(vector, DIGITS).tolist()
    return Certified("eigenvalues", claim, witness)


def _extreme(matrix: np.ndarray, place: int) -> tuple[float, np.ndarray]:
    """One eigenvalue, counted from the smallest, and its unit vector."""
    values, vectors = eigh(matrix, subset_by_index=(place, place))
    return float(values[0]), vectors[:, 0]
