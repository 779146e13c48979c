"""What the report says of encodings from the user's own files: source, digest, and the laws they keep."""

from collections.abc import Mapping, Sequence
from typing import Any

from spectrope.store import Run

ENCODING_FILES = "encoding_files"  # Field of a manifest; see `spectrope.lab.manifest`.


def wrong_declarations(runs: Sequence[Run]) -> list[str]:
    """A sentence for each law that an encoding of the user's own declares and breaks, or keeps undeclared."""
    sentences = [
        f"{name} {_fault(law)}: {law['note']}."
        for name, source in _sources(runs)
        for law in source["laws"]
        if law["declared"] != law["holds"]
    ]
    return list(dict.fromkeys(sentences))


def source_lines(runs: Sequence[Run]) -> list[str]:
    """A line for each file that an encoding comes from: class, file, digest, and every law."""
    lines = []
    for name, source in _sources(runs):
        laws = "; ".join(map(_law, source["laws"]))
        digest = f"SHA-256 {source['sha256'][:16]}"
        lines.append(f"{name}: {source['class']} in {source['file']}, {digest}. Laws: {laws}.")
    return list(dict.fromkeys(lines))


def _sources(runs: Sequence[Run]) -> list[tuple[str, Mapping[str, Any]]]:
    return [entry for run in runs for entry in run.manifest.get(ENCODING_FILES, {}).items()]


def _fault(law: Mapping[str, Any]) -> str:
    if law["declared"]:
        return f"declares the law {law['law']} and breaks it, relative error {law['error_in_float64']:.1e}"
    return f"keeps the law {law['law']} and does not declare it"


def _law(law: Mapping[str, Any]) -> str:
    said = "declared" if law["declared"] else "not declared"
    kept = "holds" if law["holds"] else "does not hold"
    rounding = f" ({law['note']})" if law["note"] and law["declared"] == law["holds"] else ""
    return f"{law['law']} {said}, {kept}{rounding}"
