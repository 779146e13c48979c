"""`python -m spectrope.verify cert.json [folder of the inputs]`, where tyro and torch are not installed."""

import sys

INVALID, BAD_INPUT = 1, 2


def main(arguments: list[str]) -> int:
    """Check a certificate: 0 if it holds, 1 if it does not, 2 if none could be read."""
    if not 1 <= len(arguments) <= 2:
        sys.stderr.write("usage: python -m spectrope.verify CERTIFICATE [INPUTS]\n")
        return BAD_INPUT
    try:
        from spectrope.verify.certificates import CertificateError, verify_file
    except ImportError:
        sys.stderr.write("verify needs python-flint, which is not installed; pip install python-flint.\n")
        return BAD_INPUT
    try:
        proof = verify_file(arguments[0], arguments[1] if len(arguments) > 1 else None)
    except CertificateError as error:
        print(f"refused: {error}")
        return INVALID
    except OSError as error:
        sys.stderr.write(f"verify: cannot read {error.filename}: {error.strerror}.\n")
        return BAD_INPUT
    print(proof)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
