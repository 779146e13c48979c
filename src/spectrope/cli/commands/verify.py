"""`spectrope verify`: check a certificate without the code that wrote it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from spectrope.console import JsonOption, print_json, say
from spectrope.core import SpectropeError, UnsupportedError

LISTED = False
INVALID = 1
MISSING = "verify needs python-flint, which is not installed; pip install 'spectrope[verify]'."


@dataclass(frozen=True, kw_only=True)
class Verify:
    """Check a certificate with interval arithmetic.

    The exit code is 0 if the certificate holds, 1 if it is refused, and 2 if it cannot be read.

    Examples:
    $ spectrope verify cert.json
    $ spectrope verify cert.json --inputs path/to/checkpoint
    """

    certificate: Annotated[
        tyro.conf.Positional[Path], tyro.conf.arg(name="certificate", help="Certificate file (JSON).")
    ]
    inputs: Annotated[
        Path | None, tyro.conf.arg(help="Folder of the files it was made from, whose hashes are compared.")
    ] = None
    json: JsonOption = False

    def run(self) -> int:
        """Check, print what is proved or the field that is refused.

        Raises:
            UnsupportedError: If python-flint is not installed.
            SpectropeError: If a file cannot be read.
        """
        try:
            from spectrope.verify import CertificateError, verify_file
        except ImportError:
            raise UnsupportedError(MISSING) from None
        try:
            proof = verify_file(self.certificate, self.inputs)
        except CertificateError as refusal:
            self._tell({"holds": False, "refused": str(refusal)}, f"refused: {refusal}")
            return INVALID
        except OSError as error:
            raise SpectropeError(f"cannot read {error.filename}: {error.strerror}.") from None
        self._tell({"holds": True, **vars(proof)}, str(proof))
        return 0

    def _tell(self, record: dict[str, object], text: str) -> None:
        if self.json:
            print_json(record)
        else:
            say(text)
