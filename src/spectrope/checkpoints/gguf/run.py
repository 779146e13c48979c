"""The audit of a GGUF file: what llama.cpp would apply, what the source declares, the verdicts."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from spectrope.checkpoints.adapters import parse_layers
from spectrope.checkpoints.audit.architectures import ambiguity
from spectrope.checkpoints.audit.compare import Discrepancy, compare, differing_pairs
from spectrope.checkpoints.audit.declaration import declared_layer, layer_type
from spectrope.checkpoints.audit.declared_scale import declared_scale
from spectrope.checkpoints.audit.encoding import LayerEncoding, Turning
from spectrope.checkpoints.audit.layers import judge
from spectrope.checkpoints.audit.records import LayerRecord, LayerVerdict
from spectrope.checkpoints.gguf.applied import (
    StatedScaling,
    applied_layer,
    factor_tensor,
    rotated_width,
    width_of_heads,
)
from spectrope.checkpoints.gguf.contradictions import contradictions, unread
from spectrope.checkpoints.gguf.file import GGUFFile, is_gguf, open_gguf
from spectrope.checkpoints.gguf.records import FileAudit
from spectrope.checkpoints.gguf.rows import SideRows, layer_rows, pairing_in_source
from spectrope.checkpoints.gguf.runtime import CONFIRMED, LONG, RELEASE, RULES, Rules, rules_of
from spectrope.checkpoints.gguf.source import Source, open_source
from spectrope.core import ConfigError, Progress, UnsupportedError, Watch, unwatched
from spectrope.encodings import Pairing

NOISE = 2**-23  # The runtime computes angles in float32.
NO_SOURCE = (
    "without the source checkpoint, the trained encoding and the order of query and key rows are unknown; "
    "give its folder with --source"
)
TURNED = {"adjacent": "adjacent rows", "halves": "rows half a head apart"}
ORDERS = {
    "same": "as in the source",
    "to adjacent": "permuted to adjacent pairs",
    "to halves": "permuted to halves",
    "other": "in no known order",
}
__all__ = ["audit_gguf", "is_gguf"]


def audit_gguf(
    path: str | Path,
    source: str | Path | None = None,
    *,
    length: int | None = None,
    layers: str | None = None,
    watch: Watch = unwatched,
) -> FileAudit:
    """Compare what llama.cpp would apply in each layer of a GGUF file with what its source declares.

    Nothing is run. Metadata and frequency factors give the rotation, scaling and window of each layer; query
    and key projections are dequantised one layer at a time and compared with the source's, which shows the
    order of their rows.

    Args:
        path: The file.
        source: Folder of the checkpoint that it was converted from, in safetensors. Without it, the file is
            only compared with itself, and no layer is called a match.
        length: Positions of the runtime's context; None takes the file's `context_length`.
        layers: Layers to compare, such as "0:4"; None takes all.
        watch: Called with the numbers of layers compared and in all.

    Raises:
        ConfigError: If the file or the source is missing or damaged, or metadata are no positive numbers.
        UnsupportedError: If the package gguf is missing, or llama.cpp's rules for the architecture are not
            known here.
    """
    file = open_gguf(path)
    rules = rules_of(file)
    if rules is None:
        raise UnsupportedError(
            f"{path} is of architecture {file.architecture!r}, whose positions in llama.cpp are not known "
            f"here; known: {', '.join(RULES)}."
        )
    length = file.count("context_length") if length is None else length
    if length < 1:
        raise ConfigError(f"an audit's length must be at least 1; got {length}.")
    count = file.count("block_count")
    if count > file.blocks:
        raise ConfigError(f"{path} states {count} layers and has tensors of {file.blocks}; convert it anew.")
    chosen = _chosen(layers, count)
    origin = None if source is None else open_source(source)
    names = {} if origin is None else file.converted(origin.files, count)
    records: list[LayerRecord] = []
    orders: list[str] = []
    for done, layer in enumerate(chosen):
        watch(Progress("audit", done, len(chosen)))
        record, order = _layer(file, rules, origin, names, layer, length)
        records.append(record)
        orders.append(order)
    watch(Progress("audit", len(chosen), len(chosen)))
    return FileAudit(
        model=str(path),
        architecture=file.architecture,
        types=file.types,
        source=None if source is None else str(source),
        length=length,
        layers=tuple(records),
        blocks=count,
        rows=tuple(orders),
        file=tuple(contradictions(file, rules, origin)),
        unread=tuple(unread(file, rules)),
        runtime=RELEASE if file.architecture in CONFIRMED else None,
    )


def _chosen(layers: str | None, count: int) -> range:
    """Numbers of the layers to compare.

    Raises:
        ConfigError: If the text names none of the file's layers.
    """
    chosen = range(count)[parse_layers(layers) if layers is not None else slice(None)]
    if not chosen:
        raise ConfigError(f"layers must take at least one of 0 to {count - 1}; got {layers}.")
    return chosen


def _layer(
    file: GGUFFile, rules: Rules, source: Source | None, names: dict[str, str], layer: int, length: int
) -> tuple[LayerRecord, str]:
    """One layer's record, and how its rows lie."""
    applied = applied_layer(file, rules, layer, length)
    if source is None:
        return _record(layer, applied, LayerEncoding(), "cannot tell", (), NO_SOURCE), "no source"
    declaration = source.declaration.at(layer)
    kind = layer_type(declaration, layer)
    declared = declared_layer(declaration, "", layer, length)
    declared = replace(declared, scale=declared_scale(declaration, layer, kind, width_of_heads(file, layer)))
    heads = file.count("attention.head_count", layer=layer)
    sides = {
        "queries": heads,
        "keys": file.count("attention.head_count_kv", layer=layer, default=heads),
    }
    head_dim, width = width_of_heads(file, layer), rotated_width(file, layer)
    rows = layer_rows(file, source, names, layer, sides, head_dim, width)
    applied, about_rows = _in_source_order(file, rules, applied, declared, rows)
    findings = [*_noted(file, rules, compare(declared, applied, length, NOISE), _order_of(rows)), *about_rows]
    if factor_tensor(file, rules, length) == LONG and declared.turning and applied.turning:
        original = StatedScaling.of(file).original
        short = declared_layer(declaration, "", layer, original).turning
        findings += _short_sequences(short, declared.turning, applied.turning, original, length)
    if doubt := ambiguity(declaration, kind):
        findings = [one for one in findings if one.what not in ("encoding", "rotated fraction")]
    verdict, reason = judge(declared, applied, findings, known=True)
    if verdict == "matches" and isinstance(rows, str):
        verdict, reason = "cannot tell", rows
    if verdict == "matches" and doubt:
        verdict, reason = "declaration ambiguous", doubt
    return _record(layer, applied, declared, verdict, tuple(findings), reason), _order_of(rows)


def _in_source_order(
    file: GGUFFile,
    rules: Rules,
    applied: LayerEncoding,
    declared: LayerEncoding,
    rows: "dict[str, SideRows] | str",
) -> tuple[LayerEncoding, list[Discrepancy]]:
    """What a layer applies in the source's coordinates, and what its rows show beside that."""
    if isinstance(rows, str):
        turning = applied.turning
        return replace(applied, turning=turning and replace(turning, pairing=None)), []
    findings = [*_strange(rows)]
    if applied.turning is None:
        return applied, [*findings, *_apart(rows)]
    width = applied.turning.width
    seen: dict[str, Pairing | None] = {
        side: pairing_in_source(one.order, rules.pairing, width) for side, one in rows.items()
    }
    agreed = next(iter(seen.values())) if len(set(seen.values())) == 1 else None
    turning = replace(applied.turning, pairing=agreed)
    if agreed is None:
        findings += _unpaired(file, rules, rows, seen, declared.turning.pairing if declared.turning else None)
    return replace(applied, turning=turning), findings


def _unpaired(
    file: GGUFFile,
    rules: Rules,
    rows: "dict[str, SideRows]",
    seen: dict[str, Pairing | None],
    wanted: Pairing | None,
) -> Iterator[Discrepancy]:
    """Sides whose rows do not lie as the runtime pairs them, where not all sides lie alike in one layout."""
    alike = {one.order for one in rows.values()}
    sides = {"queries and keys": next(iter(rows))} if len(alike) == 1 else {side: side for side in rows}
    for name, side in sides.items():
        if rows[side].order != "other" and seen[side] != wanted:
            text = f"those of pairs in {seen[side] or 'neither layout'}"
            why = _why(file, rules, ORDERS[rows[side].order])
            yield Discrepancy(f"rows of {name}", f"those of pairs in {wanted}", text, why)


def _apart(rows: "dict[str, SideRows]") -> Iterator[Discrepancy]:
    """Sides in different orders: without a rotation, only a common order leaves dot products unchanged."""
    orders = {side: ORDERS[one.order] for side, one in rows.items() if one.order != "other"}
    if len(set(orders.values())) > 1:
        text = ", ".join(f"{side} {order}" for side, order in orders.items())
        yield Discrepancy("rows of queries and keys", "in one order", text)


def _strange(rows: "dict[str, SideRows]") -> Iterator[Discrepancy]:
    """Sides whose weights are not the source's in any known order, or not in all heads."""
    for side, one in rows.items():
        if one.order == "other":
            text = f"at a relative distance of {one.distance:.2g} from them in every known order"
            yield Discrepancy(f"rows of {side}", "the source's weights", text, residual=one.distance)
        elif one.heads:
            heads = ", ".join(map(str, one.heads))
            text = f"others in heads {heads}"
            yield Discrepancy(f"rows of {side}", "the source's weights", text, residual=one.distance)


def _why(file: GGUFFile, rules: Rules, order: str) -> str:
    """Which rows a runtime turns together, and how they lie."""
    turned = TURNED[rules.pairing]
    return f"rows are {order}, and llama.cpp turns {turned} in {file.architecture!r}"


def _short_sequences(
    short: Turning | None, long: Turning, applied: Turning, original: int, length: int
) -> Iterator[Discrepancy]:
    """Long factors of LongRoPE on sequences for which the source takes short ones.

    The source chooses factors for each sequence, and llama.cpp chooses once, by the size of its context.

    Args:
        short: Declared for sequences up to the original length.
        long: Declared for longer ones.
        applied: In a context of the length; if it differs from `long`, the layer has a finding already.
        original: Positions before the extension.
        length: Positions of the runtime's context.
    """
    if short is None or len({one.width for one in (short, long, applied)}) > 1:
        return
    if differing_pairs(short, applied, original, NOISE) and not differing_pairs(long, applied, length, NOISE):
        note = f"llama.cpp chooses once, by the size of its context, here {length}"
        what = f"frequencies of sequences up to {original} positions"
        yield Discrepancy(what, "short factors", "long factors", note)


def _noted(file: GGUFFile, rules: Rules, findings: list[Discrepancy], order: str) -> Iterator[Discrepancy]:
    """Findings with the reason why the format or the runtime brings them about, where it is one of these."""
    for one in findings:
        if one.what == "encoding" and "none" in (one.expected, one.effective):
            text = {
                "every layer": "llama.cpp rotates every layer",
                "three of four": "llama.cpp leaves out every fourth layer",
                "windows": "llama.cpp rotates layers with a sliding window alone",
            }[rules.rotates]
            note = f"GGUF has no key for layers without rotation; {text} in {file.architecture!r}"
            if rules.switched_off(file):
                note = f"rope.scaling.finetuned is false, which switches it off in {file.architecture!r}"
            one = replace(one, note=note)
        elif one.what == "mask" and not rules.windows:
            one = replace(one, note=f"llama.cpp reads no sliding window in {file.architecture!r}")
        elif one.what == "pairing":
            one = replace(one, note=_why(file, rules, order))
        yield one


def _order_of(rows: "dict[str, SideRows] | str") -> str:
    """How rows lie, in words for a table."""
    if isinstance(rows, str):
        return "not compared"
    return ", ".join(sorted({"mixed" if one.heads else ORDERS[one.order] for one in rows.values()}))


def _record(
    layer: int,
    applied: LayerEncoding,
    declared: LayerEncoding,
    verdict: LayerVerdict,
    findings: tuple[Discrepancy, ...],
    reason: str,
) -> LayerRecord:
    return LayerRecord(
        module=f"blk.{layer}",
        stack="",
        layer=layer,
        position="NoPE" if applied.kind == "none" else "relative",
        effective=applied,
        declared=declared,
        verdict=verdict,
        findings=findings if verdict == "differs" else (),
        reason=reason,
        scale=applied.scale or 0.0,
        heads=(),
        reach=None,
    )
