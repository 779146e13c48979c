"""The page of an audit: one HTML file with the verdicts, and the kernels and frequencies drawn."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from spectrope.checkpoints.audit import Audit, LayerRecord
from spectrope.checkpoints.audit.figures import (
    DECLARED,
    EFFECTIVE,
    HEADS,
    kernel_panels,
    pair_panels,
    slope_panels,
)
from spectrope.checkpoints.audit.reach import PairReach, Reach
from spectrope.checkpoints.audit.rotary import rounded
from spectrope.checkpoints.audit.text import (
    arithmetic,
    closing,
    extent,
    layer_rows,
    not_checked,
    reasons,
    stretches,
)
from spectrope.figures import Section, rendered, write_page

LEAST = 300
KERNELS = (
    "The effect of the lag on each head's logits when every position has the same content, after removal of "
    "the mean over the keys of each query. Lines connect neighbouring lags; dots are single larger lags, "
    "between which a kernel may oscillate many times. The content is random, so curves differ between "
    "heads; the figure shows whether they decay, oscillate or stay flat."
)
PAIRS = (
    "Number of positions in which each coordinate pair completes a full turn. Dots are measured, rings "
    "declared; a dot outside its ring is a fault. Pairs above a dashed line do not complete a turn within "
    "that length."
)
SLOPES = (
    "Slope of each head's bias, in logit units per position of distance. Dots are measured, rings declared."
)


def write_audit(audit: Audit, path: Path, command: str = "") -> Path:
    """Write the page of an audit, whole or not at all.

    Args:
        audit: The audit.
        path: HTML file to write.
        command: Command that writes it again; empty where no command does.

    Returns:
        The path.

    Raises:
        StoreError: If the file cannot be written.
    """
    return write_page(render_audit(audit, command), path)


def render_audit(audit: Audit, command: str = "") -> str:
    """The page as text."""
    sections = _sections(audit, command)
    return rendered(
        "audit.html",
        [panel for section in sections for panel in section.panels],
        "audit.css",
        package="spectrope.checkpoints",
        audit=audit,
        closing=closing(audit),
        unlooked=not_checked(audit),
        extent=extent(audit),
        arithmetic=arithmetic(audit),
        counts=_counts(audit),
        reasons=reasons(audit),
        rows=[_row(layer) for layer in layer_rows(audit)],
        reaches=reaches(audit),
        reached=reached(audit),
        sections=sections,
        keyed=("pairs", "slopes"),
        colours={"effective": EFFECTIVE, "declared": DECLARED},
    )


def reaches(audit: Audit) -> dict[str, str]:
    """What the rotations reach at the audited length, in words, by layers whose pairs reach the same."""
    shared: dict[tuple[str, tuple[Reached, ...]], list[str]] = {}
    for layer in audit.layers:
        if layer.reach is not None and layer.effective.turning is not None:
            shared.setdefault((_reach(layer), tuple(_reached(layer.reach))), []).append(layer.name)
    return {", ".join(names): text for (text, _), names in shared.items()}


@dataclass(frozen=True)
class Reached:
    """Pairs of a rotation that have something in common.

    Args:
        what: What they do.
        pairs: Their numbers, neighbours joined.
        wavelengths: Positions per turn, from the shortest to the longest.
    """

    what: str
    pairs: str
    wavelengths: str


def reached(audit: Audit) -> dict[str, list[Reached]]:
    """Which pairs turn how far, by layers that share the text of `reaches`."""
    by_name = {layer.name: layer.reach for layer in audit.layers}
    first = {names: by_name[names.split(", ")[0]] for names in reaches(audit)}
    return {names: _reached(reach) for names, reach in first.items() if reach is not None}


def _reached(reach: Reach) -> list[Reached]:
    beyond = reach.length > reach.trained
    kinds = {
        f"turn fully within the declared {reach.trained} positions": lambda pair: pair.turned_in_training,
        f"turn fully within the audited {reach.length}": lambda pair: pair.turned,
        "reach angles that no position within the declared length has": lambda pair: beyond and pair.unseen,
        "rotate by more than half a turn per position": lambda pair: pair.aliased,
        "are slower than the base implies": lambda pair: pair.slowed,
    }
    groups = {what: [pair for pair in reach.pairs if is_one(pair)] for what, is_one in kinds.items()}
    return [
        Reached(what, stretches([pair.pair for pair in group]), _wavelengths(group))
        for what, group in groups.items()
        if group
    ]


def _wavelengths(pairs: Sequence[PairReach]) -> str:
    known = sorted(pair.wavelength for pair in pairs if pair.wavelength is not None)
    still = "do not rotate" if len(known) < len(pairs) else ""
    turning = " to ".join(dict.fromkeys(rounded(known[end]) for end in (0, -1))) if known else ""
    return ", ".join(text for text in (turning, still) if text)


def _sections(audit: Audit, command: str) -> list[Section]:
    more = any(len(layer.heads) > HEADS for layer in audit.layers)
    kernels = KERNELS + (f" Of layers with many heads about {HEADS} are drawn." if more else "")
    sections = [
        Section("pairs", "How fast pairs turn", PAIRS, pair_panels(audit), LEAST, command),
        Section("slopes", "How steep biases fall", SLOPES, slope_panels(audit), LEAST, command),
        Section("kernels", "Kernels over lag", kernels, kernel_panels(audit), LEAST, command),
    ]
    return [section for section in sections if section.panels]


def _counts(audit: Audit) -> dict[str, int]:
    """Layers by verdict, matches first."""
    verdicts = [layer.verdict for layer in (*audit.layers, *audit.indexers, *audit.decays, *audit.vision)]
    order = ("matches", "differs", "undeclared", "declaration ambiguous", "cannot tell")
    return {verdict: verdicts.count(verdict) for verdict in order if verdict in verdicts}


def _row(layer: dict[str, str]) -> dict[str, str]:
    return layer | {"name": layer["layer"], "why": layer["reason"]}


def _reach(layer: LayerRecord) -> str:
    reach, turning = layer.reach, layer.effective.turning
    assert reach is not None
    assert turning is not None
    pairs = len(turning.frequencies)
    parts = [
        f"{reach.turned} of {pairs} pairs turn fully within {reach.length} positions, "
        f"{reach.turned_in_training} within the declared {reach.trained}"
    ]
    if reach.length > reach.trained:
        parts.append(f"{reach.unseen} reach angles that no position within the declared length has")
    if reach.aliased:
        parts.append(
            f"{reach.aliased} rotate by more than half a turn per position, so their sense is ambiguous"
        )
    if reach.slowed_from is not None:
        most = "and the slowest do not rotate" if reach.slowdown is None else f"by up to {reach.slowdown:.4g}"
        parts.append(f"pairs are slowed from pair {reach.slowed_from} on, {most}")
    return "; ".join(parts) + "."
