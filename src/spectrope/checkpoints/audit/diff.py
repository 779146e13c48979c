"""Compare the measured encodings of two models, without using their configurations."""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import polars as pl
from jaxtyping import Float
from torch import Tensor

from spectrope.checkpoints.audit.compare import SLOPE, Discrepancy, compare
from spectrope.checkpoints.audit.far_encoding import far_differences
from spectrope.checkpoints.audit.records import AbsoluteRecord, Audit, LayerRecord
from spectrope.checkpoints.audit.text import beyond_length
from spectrope.console import Shown
from spectrope.core import ConfigError

COLUMNS = ("layer", "first", "second", "verdict")
SHIFTS = 3  # Positions by which a table may be read ahead or behind; audits have at least 8.
EXPLAINED = 0.5  # Share of a difference that a shift may leave.
TABLED = ("bucketed bias", "lag bias")  # Kinds that are a family alone, whose values are compared besides.


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
    findings: tuple[Discrepancy, ...]


@dataclass(frozen=True, repr=False)
class Difference(Shown):
    """Layer-by-layer comparison of two audits.

    Args:
        first: Name of the first model.
        second: Name of the second model.
        length: Positions of both audits.
        layers: What each applies, layer by layer, and where these differ.
        uncompared: Names of layers that were not compared: indexers, linear attention and vision towers.
        unread: Dotted names of modules that were not compared, because no audit reads them.
        beyond: What was not compared beyond the audited length, in words.
    """

    first: str
    second: str
    length: int
    layers: tuple[LayerDifference, ...]
    uncompared: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    beyond: tuple[str, ...] = ()

    @property
    def same(self) -> bool:
        """Whether no layer that was compared differs."""
        return not any(layer.findings for layer in self.layers)

    def to_frame(self) -> pl.DataFrame:
        """A row per layer: what the first and the second model apply, and whether that differs."""
        rows = [
            (one.layer, one.first, one.second, "differs" if one.findings else "same") for one in self.layers
        ]
        return pl.DataFrame(rows, schema=dict.fromkeys(COLUMNS, pl.String), orient="row")

    def parts(self) -> Iterator[str | tuple[str, pl.DataFrame]]:
        headings = ("layer", self.first, self.second, "")
        distinct = len(set(headings)) == len(headings)
        shown = self.to_frame()
        yield (
            f"{self.length} positions",
            shown.rename(dict(zip(COLUMNS, headings, strict=True))) if distinct else shown,
        )
        for one in self.layers:
            for finding in one.findings:
                note = f" ({finding.note})" if finding.note else ""
                both = f"{finding.expected} against {finding.effective}"
                yield f"layer {one.layer}: {finding.what}, {both}{note}"
        if self.uncompared:
            names = ", ".join(self.uncompared)
            yield f"Not compared, as indexers, linear attention or vision towers: layers {names}."
        if self.unread:
            yield f"Not compared, without attention that is read: {', '.join(self.unread)}."
        if self.beyond:
            yield f"Not compared: {'; '.join(self.beyond)}."

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready values, with the summary first."""
        return {"same": self.same, **dataclasses.asdict(self)}


def diff(first: Any, second: Any) -> Difference:
    """Compare the encodings that two models apply, matching layers by number.

    Args:
        first: Audit of one model.
        second: Audit of the other model, at the same length.

    Raises:
        ConfigError: If these are not audits, or their lengths, numbers of layers or numbers of heads differ.

    Example:
        >>> import spectrope as sp
        >>> from transformers import LlamaConfig, LlamaModel
        >>> sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1}
        >>> model = LlamaModel(LlamaConfig(vocab_size=50, num_attention_heads=4, **sizes))
        >>> before = sp.audit(model, length=64, watch=sp.unwatched)
        >>> model.rotary_emb.inv_freq *= 0.5
        >>> after = sp.audit(model, length=64, watch=sp.unwatched)
        >>> sp.diff(before, after).same
        False
    """
    for one in (first, second):
        if not isinstance(one, Audit):
            raise ConfigError(
                f"diff compares two audits, such as diff(audit(one), audit(other)); "
                f"got a {type(one).__name__}."
            )
        one.require_layers("diff")
    _check("length", first.length, second.length)
    _check("layers", len(first.layers), len(second.layers))
    numbers = [", ".join(str(one.layer) for one in audit.layers) for audit in (first, second)]
    if numbers[0] != numbers[1]:
        raise ConfigError(f"two models are compared at the same layers; got {numbers[0]} and {numbers[1]}.")
    embeddings = [
        _embeddings(a, b, max(first.noise, second.noise))
        for a, b in zip(first.absolutes, second.absolutes, strict=False)
        if a.term is not None or b.term is not None
    ]
    layers = [
        _layers(a, b, first.length, max(first.noise, second.noise))
        for a, b in zip(first.layers, second.layers, strict=True)
    ]
    others = [one for audit in (first, second) for one in (*audit.indexers, *audit.decays, *audit.vision)]
    names = tuple(dict.fromkeys(one.name for one in others))
    unread = tuple(dict.fromkeys(name for one in (first, second) for name in (*one.unread, *one.without)))
    beyond = tuple(dict.fromkeys(one for audit in (first, second) for one in beyond_length(audit)))
    return Difference(first.model, second.model, first.length, (*embeddings, *layers), names, unread, beyond)


def _check(what: str, first: int, second: int) -> None:
    if first != second:
        raise ConfigError(f"two models are compared at the same number of {what}; got {first} and {second}.")


def layer_findings(a: LayerRecord, b: LayerRecord, length: int, noise: float) -> list[Discrepancy]:
    """Where two layers with as many heads differ: in encodings, else in biases, else at far positions.

    Args:
        a: The first layer; it is what the other is expected to be.
        b: The second layer.
        length: Positions of both audits.
        noise: Relative rounding error of the coarser arithmetic.
    """
    findings = compare(a.effective, b.effective, length, noise)
    if not findings and a.effective.kind in TABLED:
        findings += _biases(a, b, tolerance(noise))
    return findings or [*far_differences(a.far, b.far)]


def _layers(a: LayerRecord, b: LayerRecord, length: int, noise: float) -> LayerDifference:
    _check("heads", len(a.heads), len(b.heads))
    findings, turning = layer_findings(a, b, length, noise), a.declared.turning
    return LayerDifference(
        a.name, a.effective.describe(turning), b.effective.describe(turning), tuple(findings)
    )


def _biases(a: LayerRecord, b: LayerRecord, within: float) -> Iterator[Discrepancy]:
    """The bias that departs most, by the kernels' sampled lags; a constant per head has no effect."""
    apart: list[tuple[float, float, float, int, int]] = []
    largest = 0.0
    for one, other in zip(a.heads, b.heads, strict=True):
        known = dict(zip(other.lags, other.kernel, strict=True))
        both = [(lag, x, known[lag]) for lag, x in zip(one.lags, one.kernel, strict=True) if lag in known]
        largest = max([largest, *(max(abs(x), abs(y)) for _, x, y in both)])
        apart += [(abs(x - y), x, y, lag, one.head) for lag, x, y in both]
    off, x, y, lag, head = max(apart, default=(0.0, 0.0, 0.0, 0, 0))
    if off > within * largest:
        yield Discrepancy("bias less that at lag 0", f"{x:.4g} at lag {lag} in head {head}", f"{y:.4g}")


def tolerance(noise: float) -> float:
    """Share of the largest value by which two measured ones may be apart."""
    return max(SLOPE, 10 * noise)


def vector_findings(first: Audit, second: Audit) -> list[Discrepancy]:
    """Where the vectors that embeddings add by position differ, from whichever rows of tables they come."""
    noise, found = max(first.noise, second.noise), list[Discrepancy]()
    for a, b in zip(first.absolutes, second.absolutes, strict=False):
        if (a.term is None) != (b.term is None):
            found.append(Discrepancy("absolute term", _described(a), _described(b)))
        found += _terms(a, b, tolerance(noise))
    return found


def _embeddings(a: AbsoluteRecord, b: AbsoluteRecord, noise: float) -> LayerDifference:
    first, second = (_described(one) for one in (a, b))
    if first != second:
        findings = (Discrepancy("absolute term", first, second),)
    else:
        findings = tuple(_terms(a, b, tolerance(noise)))
    return LayerDifference("embeddings", first, second, findings)


def _described(one: AbsoluteRecord) -> str:
    if one.table:
        return f"table from row {one.first_row}"
    return "no table" if one.term is None else "a term without a table"


def _terms(a: AbsoluteRecord, b: AbsoluteRecord, within: float) -> Iterator[Discrepancy]:
    """Whether the vectors by position, less their mean, are others."""
    if a.term is None or b.term is None:
        return
    if a.term.shape != b.term.shape:
        sizes = [f"{len(one.T)} coordinates" for one in (a.term, b.term)]
        yield Discrepancy("vectors by position", sizes[0], sizes[1])
        return
    norms = [one.norm().item() for one in (a.term, b.term)]
    apart = (a.term - b.term).norm().item()
    if apart > within * max(norms) and (shift := _shift(a.term, b.term)):
        steps = "1 position" if abs(shift) == 1 else f"{abs(shift)} positions"
        other = f"those of {steps} {'later' if shift > 0 else 'earlier'}"
        yield Discrepancy("first position", "vectors of these positions", other)
    elif apart > within * max(norms):
        norms_apart = f"norm {norms[1]:.4g}, {100 * apart / max(norms):.3g} % of the larger apart"
        yield Discrepancy("vectors by position", f"norm {norms[0]:.4g}", norms_apart)


def _shift(a: Float[Tensor, "t c"], b: Float[Tensor, "t c"]) -> int:
    """By how many positions the second vectors are ahead, if that explains most of the difference; else 0.

    The same inner positions of the second are compared at every shift.
    """
    end = len(b) - SHIFTS

    def apart(by: int) -> float:
        gap = a[SHIFTS + by : end + by] - b[SHIFTS:end]
        return (gap - gap.mean(0)).norm().item()

    best = min(range(-SHIFTS, SHIFTS + 1), key=apart)
    return best if apart(best) < EXPLAINED * apart(0) else 0
