"""`python -m spectrope.verify cert.json [--inputs FOLDER]`, where neither tyro nor torch is installed."""

import argparse
import sys
from pathlib import Path

from spectrope.verify.folders import certificates_in, shown

INVALID, BAD_INPUT = 1, 2


def main(arguments: list[str]) -> int:
    """Check a certificate, or all in a folder: 0 if all hold, 1 if one does not, 2 if one cannot be read."""
    parser = argparse.ArgumentParser("python -m spectrope.verify", description="Check certificates.")
    parser.add_argument("certificate", type=Path, help="certificate file (JSON), or a folder of them")
    parser.add_argument("--inputs", type=Path, help="folder of the files it was made from, to be compared")
    try:
        asked = parser.parse_args(arguments)
    except SystemExit as end:  # Of help, or of words that it does not know.
        return int(end.code or 0)
    files, is_folder = [asked.certificate], asked.certificate.is_dir()
    if is_folder and not (files := certificates_in(asked.certificate)):
        sys.stderr.write(f"verify: folder {asked.certificate} holds no certificate (*.json).\n")
        return BAD_INPUT
    return max(_checked(file, asked.inputs, f"{shown(file.name)}: " if is_folder else "") for file in files)


def _checked(file: Path, inputs: Path | None, name: str) -> int:
    """Check one certificate and print what it proves, after its name."""
    try:
        from spectrope.verify.certificates import CertificateError, verify_file
    except ImportError:
        sys.stderr.write("verify needs python-flint, which is not installed; pip install python-flint.\n")
        return BAD_INPUT
    try:
        proof = verify_file(file, inputs)
    except CertificateError as error:
        print(f"{name}refused: {error}")
        return INVALID
    except OSError as error:
        sys.stderr.write(f"verify: cannot read {error.filename or file}: {error.strerror}.\n")
        return BAD_INPUT
    print(f"{name}{proof}")
    return 0


if __name__ == "__main__":
    sys.stdout.reconfigure(errors="backslashreplace")  # pyright: ignore[reportAttributeAccessIssue]
    sys.exit(main(sys.argv[1:]))
