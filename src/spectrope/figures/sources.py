"""User-defined encodings on pages: their source files, digests and laws."""

from collections.abc import Mapping, Sequence
from typing import Any

from spectrope.figures.shell import Table
from spectrope.store import Run

ENCODING_FILES = "encoding_files"  # Field of a manifest; see `spectrope.lab.manifest`.


def wrong_declarations(runs: Sequence[Run]) -> list[str]:
    """Sentences about user-defined encodings whose declared laws differ from the measured ones."""
    sentences = [
        f"{name} {_fault(law)}: {law['note']}."
        for name, source in _sources(runs)
        for law in source["laws"]
        if law["declared"] != law["holds"]
    ]
    return list(dict.fromkeys(sentences))


def source_lines(runs: Sequence[Run]) -> list[str]:
    """One line per user-defined encoding: class, file, digest, and every law."""
    lines = [
        f"{_origin(name, source)} Laws: {'; '.join(map(_law, source['laws']))}."
        for name, source in _sources(runs)
    ]
    return list(dict.fromkeys(lines))


def law_tables(runs: Sequence[Run]) -> list[Table]:
    """One table per user-defined encoding: its laws, as declared and as measured."""
    sources = dict(_sources(runs))
    return [_law_table(name, source) for name, source in sources.items()]


def _law_table(name: str, source: Mapping[str, Any]) -> Table:
    rows = [
        {
            "law": law["law"],
            "declared": "yes" if law["declared"] else "no",
            "holds": "yes" if law["holds"] else "no",
            "note": law["note"],
        }
        for law in source["laws"]
    ]
    caption = (
        f"{_origin(name, source)} Each law was measured on random contents before training, also with "
        "float32 widened to float64, so that rounding is not mistaken for a violation."
    )
    return Table(f"laws-{name}", f"Laws of {name}", caption, rows)


def _origin(name: str, source: Mapping[str, Any]) -> str:
    return f"{name}: {source['class']} in {source['file']}, SHA-256 {source['sha256'][:16]}."


def _sources(runs: Sequence[Run]) -> list[tuple[str, Mapping[str, Any]]]:
    return [entry for run in runs for entry in run.manifest.get(ENCODING_FILES, {}).items()]


def _fault(law: Mapping[str, Any]) -> str:
    if not law["declared"]:
        return f"does not declare the law {law['law']}, which holds"
    size = law["error_in_float64"]  # None where it is infinite, which JSON cannot hold.
    measured = "" if size is None else f" (relative error {size:.1e})"
    return f"declares the law {law['law']}, which does not hold{measured}"


def _law(law: Mapping[str, Any]) -> str:
    said = "declared" if law["declared"] else "not declared"
    kept = "holds" if law["holds"] else "does not hold"
    rounding = f" ({law['note']})" if law["note"] and law["declared"] == law["holds"] else ""
    return f"{law['law']} {said}, {kept}{rounding}"
