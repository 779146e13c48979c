"""Two models' effective encodings side by side; no declaration is trusted."""

import dataclasses
from dataclasses import dataclass
from typing import Any

from spectrope.auditing.compare import Finding, compare
from spectrope.auditing.records import AbsoluteRecord, Audit, LayerRecord
from spectrope.core.errors import ConfigError


@dataclass(frozen=True)
class LayerDifference:
    """Where one layer's encodings differ, if they do.

    Args:
        layer: Name of the layer, or of the embeddings.
        first: What the first model applies.
        second: What the second model applies.
        findings: Respects in which they differ; "expected" is the first's, "effective" the second's.
    """

    layer: str
    first: str
    second: str
    findings: tuple[Finding, ...]


@dataclass(frozen=True)
class Difference:
    """Two audits compared layer by layer."""

    first: str
    second: str
    length: int
    layers: tuple[LayerDifference, ...]

    @property
    def same(self) -> bool:
        """Whether no layer differs."""
        return not any(layer.findings for layer in self.layers)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready values, with the summary first."""
        return {"same": self.same, **dataclasses.asdict(self)}


def diff(first: Audit, second: Audit) -> Difference:
    """Compare what two models apply, each layer with that of the same number.

    Args:
        first: The audit of one model.
        second: That of the other, at the same length.

    Raises:
        ConfigError: If lengths, layers or heads are not as many.
    """
    _check("length", first.length, second.length)
    _check("layers", len(first.layers), len(second.layers))
    embeddings = [
        _embeddings(a, b)
        for a, b in zip(first.absolutes, second.absolutes, strict=False)
        if a.table or b.table
    ]
    layers = [
        _layers(a, b, first.length, max(first.noise, second.noise))
        for a, b in zip(first.layers, second.layers, strict=True)
    ]
    return Difference(first.model, second.model, first.length, (*embeddings, *layers))


def _check(what: str, first: int, second: int) -> None:
    if first != second:
        raise ConfigError(f"two models are compared at the same number of {what}; got {first} and {second}.")


def _layers(a: LayerRecord, b: LayerRecord, length: int, noise: float) -> LayerDifference:
    _check("heads", len(a.heads), len(b.heads))
    findings = compare(a.effective, b.effective, length, noise)
    base = a.declared.turning.base if a.declared.turning else None
    return LayerDifference(a.name, a.effective.describe(base), b.effective.describe(base), tuple(findings))


def _embeddings(a: AbsoluteRecord, b: AbsoluteRecord) -> LayerDifference:
    first, second = ((one.table and f"table from row {one.first_row}") or "no table" for one in (a, b))
    findings = () if first == second else (Finding("absolute term", first, second),)
    return LayerDifference("embeddings", first, second, findings)
