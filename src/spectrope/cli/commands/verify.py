"""`spectrope verify`: check a certificate without the code that wrote it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from spectrope.console import JsonOption, print_json, say
from spectrope.core import ConfigError, SpectropeError, UnsupportedError
from spectrope.verify.folders import certificates_in, shown

LISTED = False
INVALID, BAD_INPUT = 1, 2
MISSING = "verify needs python-flint, which is not installed; pip install 'spectrope[verify]'."


@dataclass(frozen=True, kw_only=True)
class Verify:
    """Check a certificate, or all in a folder, with interval arithmetic.

    The exit code is 0 if all hold, 1 if one is refused, and 2 if one cannot be read.

    Examples:
    $ spectrope verify certificates
    $ spectrope verify cert.json --inputs path/to/checkpoint
    """

    certificate: Annotated[
        tyro.conf.Positional[Path],
        tyro.conf.arg(name="certificate", help="Certificate file (JSON), or a folder of them."),
    ]
    inputs: Annotated[
        Path | None, tyro.conf.arg(help="Folder of the files it was made from, whose hashes are compared.")
    ] = None
    json: JsonOption = False

    def run(self) -> int:
        """Check, and print what is proved or the field that is refused; of a folder, for each certificate.

        Raises:
            UnsupportedError: If python-flint is not installed.
            ConfigError: If the folder holds no certificate.
            SpectropeError: If a file cannot be read.
        """
        if not self.certificate.is_dir():
            record = self._checked(self.certificate)
            if "unread" in record:
                raise SpectropeError(record["unread"])
            self._tell(record)
            return 0 if record["holds"] else INVALID
        files = certificates_in(self.certificate)
        if not files:
            raise ConfigError(f"folder {self.certificate} holds no certificate (*.json).")
        records = [{"file": path.name, **self._checked(path)} for path in files]
        self._tell(*records)
        if any("unread" in record for record in records):
            return BAD_INPUT
        return 0 if all(record["holds"] for record in records) else INVALID

    def _checked(self, path: Path) -> dict[str, Any]:
        try:
            from spectrope.verify import CertificateError, verify_file
        except ImportError:
            raise UnsupportedError(MISSING) from None
        try:
            proof = verify_file(path, self.inputs)
        except CertificateError as refusal:
            return {"holds": False, "refused": str(refusal), "text": f"refused: {refusal}"}
        except OSError as error:
            told = f"cannot read {error.filename or path}: {error.strerror}."
            return {"holds": False, "unread": told, "text": told}
        return {"holds": True, **vars(proof), "text": str(proof)}

    def _tell(self, *records: dict[str, Any]) -> None:
        texts = [record.pop("text") for record in records]
        if self.json:
            print_json(records[0] if "file" not in records[0] else list(records))
            return
        for record, text in zip(records, texts, strict=True):
            say(f"{shown(record['file'])}: {text}" if "file" in record else text)
