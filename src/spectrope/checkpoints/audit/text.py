"""An audit as a table in words: for the terminal, a string, a notebook and a frame."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spectrope.checkpoints.audit.plane import PlaneTurning
    from spectrope.checkpoints.audit.records import Audit, DecayRecord, LayerRecord, VisionRecord

COLUMNS = ("layer", "module", "position", "effective", "declared", "mask", "verdict", "reason")
SEEN = (
    "what the configuration declares, in everything that was tested: rotation, factor and mask of every "
    "head, norms of queries and keys, biases and their tables, caps and sinks of logits, values (which must "
    "not depend on the position), absolute terms"
)
PICTURES = (
    "Every layer of the vision tower applies the declared rotation by row and column, in everything that was "
    "tested: axis, frequency and pairing of every pair in every query and key head, its first position and "
    "factor, the factor on dot products, the mask, values (which must not depend on the position)"
)
WEIGHTS = "weights (kernels do not show, for example, that a conversion permuted rows of a projection)"
LONG = "one token after"  # Begins the name of a serving mode in which the keys before are zeros.
BEAMS = "beam search"  # A serving mode of which outputs alone are compared.
KEYS_ALONE = ", keys alone"  # Ends it where its query is not compared.
FEW = "fewer "  # Begins the inputs of a further pass in which some layers may stand for others.
LAYOUT = "the layout of pairs and the direction of rotation"
UNREAD = "its form of attention is not supported"
NO_SOFTMAX = "no softmax attention ran on tokens alone, so not audited"
PARTLY = "it takes a further softmax, of a form that is not supported"
SHOWN = ("layer", "position", "effective", "mask", "verdict")


def layer_row(layer: "LayerRecord") -> dict[str, str]:
    """What a layer applies and is declared to apply, in words, under `COLUMNS`."""
    turning = layer.declared.turning
    return {
        "layer": layer.name,
        "module": layer.module,
        "position": layer.position,
        "effective": layer.effective.describe(turning),
        "declared": layer.declared.describe(turning),
        "mask": str(layer.effective.mask),
        "verdict": layer.verdict,
        "reason": "; ".join(map(str, layer.findings)) or layer.reason,
    }


def decay_row(one: "DecayRecord") -> dict[str, str]:
    """The same of a layer of linear attention."""
    return {
        "layer": one.name,
        "module": one.module,
        "position": "relative",
        "effective": _decay(one.effective),
        "declared": _decay(one.declared),
        "mask": "causal",
        "verdict": one.verdict,
        "reason": "; ".join(map(str, one.findings)) or one.reason,
    }


def _decay(rates: tuple[float, ...]) -> str:
    return f"decay, rates {rates[0] + 0:.4g} … {rates[-1] + 0:.4g}" if rates else "unknown"


def vision_row(one: "VisionRecord") -> dict[str, str]:
    """The same of a layer of a vision tower."""
    return {
        "layer": one.name,
        "module": one.module,
        "position": one.position,
        "effective": "unknown" if one.effective is None else one.effective.describe(),
        "declared": one.declared.describe(),
        "mask": one.mask,
        "verdict": one.verdict,
        "reason": "; ".join(map(str, one.findings)),
    }


def layer_rows(audit: "Audit") -> list[dict[str, str]]:
    """A row per layer under `COLUMNS`; those of linear attention have their places among the others."""
    seen = [*map(layer_row, audit.indexers), *map(vision_row, audit.vision)]
    if not audit.decays:
        return [*map(layer_row, audit.layers), *seen]
    rows = [(layer.layer, layer_row(layer)) for layer in audit.layers]
    rows += [(one.layer, decay_row(one)) for one in audit.decays]
    return [*(row for _, row in sorted(rows, key=lambda numbered: numbered[0])), *seen]


def title(audit: "Audit") -> str:
    """Model, length and what it ran with."""
    return f"{audit.model} ({audit.architecture}), {extent(audit)} in {arithmetic(audit)}"


def arithmetic(audit: "Audit") -> str:
    """Type of the arithmetic, and the library's attention."""
    names = ", ".join(audit.attention)
    return audit.dtype + (f", with {names} attention of transformers {audit.transformers}" if names else "")


def subject(audit: "Audit") -> str:
    """The model, and which of its layers were audited where others were not loaded."""
    if not audit.omitted:
        return audit.model
    loaded = layers_named(one.name for one in audit.layers)
    return f"{audit.model}, {loaded} alone, without {layers_named(audit.omitted)}"


def layers_named(names: Iterable[str]) -> str:
    """Layers in words, neighbours joined: "layer 3", "layers 0–3, 7" or "layers encoder 0, decoder 0–1"."""
    stacks: dict[str, set[int]] = {}
    for name in names:
        stack, _, number = name.rpartition(" ")
        stacks.setdefault(stack, set()).add(int(number))
    in_order = sorted(stacks, key=lambda stack: (stack == "decoder", stack))  # A decoder behind its encoder.
    told = ", ".join(f"{stack} {stretches(sorted(stacks[stack]))}".strip() for stack in in_order)
    return f"layer{'s' if sum(map(len, stacks.values())) > 1 else ''} {told}"


def stretches(numbers: Sequence[int]) -> str:
    """Ascending numbers with neighbours joined: "0–3, 7"."""
    ends: list[list[int]] = []
    for number in numbers:
        if ends and ends[-1][1] == number - 1:
            ends[-1][1] = number
        else:
            ends.append([number, number])
    return ", ".join(str(low) if low == high else f"{low}–{high}" for low, high in ends)


def extent(audit: "Audit") -> str:
    """What was audited: a number of positions, or a picture."""
    if audit.layers or not audit.vision:
        return f"{audit.length} positions"
    rows, columns = audit.vision[0].grid
    return f"a picture of {rows} × {columns} patches"


def shown_rows(audit: "Audit") -> list[tuple[str, ...]]:
    """A row per embedding and layer under `SHOWN`."""
    rows = (tuple(row[name] for name in SHOWN) for row in layer_rows(audit))
    return [*_embeddings(audit), *rows]


def reasons(audit: "Audit") -> list[tuple[str, str]]:
    """Where something does not match, and why."""
    findings = [(one.where, f"{one.code} {one.message}; {one.impact}") for one in audit.records]
    others = [(f"layer {one.name}", one.reason) for one in (*audit.layers, *audit.decays) if one.reason]
    refused = [(f"serving mode {one.mode}", one.reason) for one in audit.serving_modes if one.reason]
    read = {layer.module for layer in audit.layers}
    unread = [(module, PARTLY if module in read else UNREAD) for module in audit.unread]
    without = [(", ".join(audit.without), NO_SOFTMAX)] if audit.without else []
    unserved = [("not checked", one) for one in (*_omitted(audit), *audit.unserved, audit.unseen) if one]
    return [*findings, *others, *_absolutes(audit), *refused, *unread, *without, *unserved]


def closing(audit: "Audit") -> str:
    """What an audit without findings looked at, and what it did not."""
    return " ".join(filter(None, (_of_texts(audit), _of_pictures(audit))))


def _of_pictures(audit: "Audit") -> str:
    """What was seen of vision towers."""
    if not audit.vision:
        return ""
    rows, columns = audit.vision[0].grid
    exercised = all(one.exercised for one in audit.vision)
    ordered = all(one.ordered for one in audit.vision)
    tried = ", which patch stands at each place" if ordered else ""
    tried += ", outputs of attention functions for random inputs" if exercised else ""
    unseen = "" if ordered else "which patch stands at each place; "
    unseen += "" if exercised else "outputs of attention functions; "
    if any(one.origin is None for one in _turnings(audit)):
        unseen += "the first position; "
    return (
        f"{PICTURES}{tried}, on one picture of {rows} × {columns} patches. Not checked there: {unseen}"
        "pictures of other sizes, several at once and videos; learned positions; norms of queries and keys; "
        f"{'; '.join([*_elsewhere(audit), 'weights'])}."
    )


def _turnings(audit: "Audit") -> list["PlaneTurning"]:
    return [one.effective for one in audit.vision if one.effective is not None]


def _of_texts(audit: "Audit") -> str:
    """The same of layers over tokens."""
    if not audit.layers:
        return ""
    tried = "" if audit.untried else ", outputs of attention functions for random inputs"
    modes_of = [one.mode for one in audit.serving_modes]
    served = ", ".join(mode for mode in modes_of if not mode.startswith(LONG) and mode != BEAMS)
    alike = (
        f" Serving modes ({served}) over up to {audit.served_tokens} tokens have the kernels of a plain "
        "forward pass, and its outputs of attention for varied content."
        if served
        else ""
    )
    alike += " Beam search has these outputs, too." if BEAMS in modes_of else ""
    for mode in (mode for mode in modes_of if mode.startswith(LONG)):
        compared = "" if mode.endswith(KEYS_ALONE) else ", and its query is that of a pass of three tokens"
        others = mode.removesuffix(KEYS_ALONE).removeprefix(LONG)
        alike += f" One token after{others} others sees all keys that it is given{compared}."
    inputs = "; ".join(audit.further)
    further = f" Further passes with {inputs} showed no difference either." if inputs else ""
    for few in (one for one in audit.further if one.startswith(FEW)):
        further += f" With {few}, at least one layer of each kind was compared."
    beside = f"{_linear(audit)}{_indexing(audit)}"
    beyond = beyond_length(audit, _in_tables(audit))
    unseen = "; ".join([*beyond, *_unserved(audit), *_untried(audit)])
    return f"{_applying(audit)} {SEEN}{tried}.{further}{alike}{beside} Not checked: {unseen}."


def _applying(audit: "Audit") -> str:
    """Which layers apply what is declared, as the beginning of a sentence."""
    if not audit.omitted and not audit.without:
        return "Every layer applies"
    names = layers_named(one.name for one in audit.layers)
    return f"L{names[1:]} {'apply' if names.startswith('layers') else 'applies'}"


def _omitted(audit: "Audit") -> list[str]:
    """Layers that were not loaded."""
    verb = "was" if len(audit.omitted) == 1 else "were"
    return [f"{layers_named(audit.omitted)}, which {verb} not loaded"] if audit.omitted else []


def _elsewhere(audit: "Audit") -> list[str]:
    """What the library could run the attention with instead."""
    names = ", ".join(audit.attention)
    return [f"implementations of attention other than {names}"] if names else []


def not_checked(audit: "Audit") -> str:
    """What an audit with findings did not look at, beside what its reasons name; "" of a vision tower."""
    unseen = [*beyond_length(audit, _in_tables(audit)), *_modes(audit), *_untried(audit)]
    return f"Not checked: {'; '.join(unseen)}." if audit.layers else ""


def _unserved(audit: "Audit") -> list[str]:
    """Serving modes and parts of the model that were not looked at."""
    return [one for one in (*_omitted(audit), *_modes(audit), *audit.unserved, audit.unseen) if one]


def _modes(audit: "Audit") -> list[str]:
    """Serving modes, if all of them were left out."""
    return [] if audit.serving_modes or audit.unserved else ["serving modes"]


def _untried(audit: "Audit") -> list[str]:
    """What was not compared, attention functions and inputs that were not tried, and weights."""
    names = ", ".join(audit.untried)
    functions = [f"the attention function of {names}, which was not run"] if names else []
    turnings = [layer.declared.turning for layer in audit.layers if layer.declared.turning is not None]
    layout = [LAYOUT] if any(None in (one.pairing, one.sense) for one in turnings) else []
    return [*layout, *functions, *_elsewhere(audit), *audit.unexercised, WEIGHTS]


def _linear(audit: "Audit") -> str:
    """What was seen of layers of linear attention."""
    if not audit.decays:
        return ""
    names = ", ".join(one.name for one in audit.decays)
    reach = max(one.reach for one in audit.decays)
    cached = ", also behind a cache" if all(one.cached for one in audit.decays) else ""
    return (
        f" In linear attention (layers {names}), the weight of one key decays in every head as declared, up "
        f"to lag {reach}{cached}; padding and packing were not checked there."
    )


def _indexing(audit: "Audit") -> str:
    """What was seen of indexers."""
    if not audit.indexers:
        return ""
    names = ", ".join(str(one.layer) for one in audit.indexers)
    return (
        f" Indexers (layers {names}), which choose the keys of sparse attention, rotate queries and keys as "
        "declared; their scores, what they choose, and their caches were not checked."
    )


def _in_tables(audit: "Audit") -> str:
    """Which positions beyond the audited length were looked at in the tables of embeddings."""
    end = max((one.length for one in audit.absolutes if one.table), default=0)
    return f", except in the embeddings' tables, up to position {end - 1}" if end > audit.length else ""


def beyond_length(audit: "Audit", seen: str = "") -> list[str]:
    """Positions and windows beyond the audited length that were not looked at, in words.

    Args:
        audit: The audit.
        seen: An exception from them, as the end of a clause.
    """
    far = audit.far
    if far is None or not (far.positions or far.windows or far.unchecked):
        return [f"positions from {audit.length} on{seen}"]
    beyond = [position for position in far.positions if position >= audit.length]
    if not beyond:
        return [f"rotations from position {audit.length} on{seen}", *far.unchecked]
    return [
        f"positions from {audit.length} on, except {len(beyond)} chosen ones up to {beyond[-1]}",
        f"passes of more than {audit.length} tokens",
        *far.unchecked,
    ]


def as_text(audit: "Audit") -> str:
    """Title, table and reasons, a line each."""
    rows = [
        SHOWN,
        *shown_rows(audit),
        *((f"serving mode {one.mode}", "", "", "", one.verdict) for one in audit.serving_modes),
    ]
    widths = [max(len(row[i]) for row in rows) for i in range(len(SHOWN))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    explained = [f"{where}: {why}" for where, why in reasons(audit)]
    notes = [f"note: {note}" for note in audit.notes]
    return "\n".join([title(audit), *(line.rstrip() for line in lines), *explained, *notes])


def as_html(audit: "Audit") -> str:
    """The same as a table of HTML; names are escaped."""
    head = "".join(f"<th>{name}</th>" for name in SHOWN)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in shown_rows(audit)
    )
    explained = [*reasons(audit), *(("note", note) for note in audit.notes)]
    items = "".join(f"<li>{escape(f'{where}: {why}')}</li>" for where, why in explained)
    items = f"<ul>{items}</ul>" if items else ""
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f"<p>{escape(title(audit))}</p>{table}{items}"


def _absolutes(audit: "Audit") -> list[tuple[str, str]]:
    by_verdict = {
        "undeclared": "positions are added that the configuration does not declare in a known way",
        "cannot tell": "positions are added that are not rows of a table",
    }
    named = ((f"embeddings of {one.block}", by_verdict.get(one.verdict)) for one in audit.absolutes)
    return [(where, why) for where, why in named if why is not None]


def _embeddings(audit: "Audit") -> list[tuple[str, ...]]:
    return [
        ("embeddings", "absolute", f"table {one.table} from row {one.first_row}", "", one.verdict)
        if one.table
        else ("embeddings", "absolute" if one.verdict != "matches" else "NoPE", "none", "", one.verdict)
        for one in audit.absolutes
    ]
