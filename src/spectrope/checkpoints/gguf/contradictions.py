"""Where a GGUF file contradicts itself or its source as a whole, and what of it the runtime does not read."""

from collections.abc import Iterator

from spectrope.checkpoints.audit.compare import Discrepancy
from spectrope.checkpoints.gguf.applied import StatedScaling, rotated_width, width_of_heads
from spectrope.checkpoints.gguf.file import GGUFFile
from spectrope.checkpoints.gguf.runtime import FREQS, LONG, SHORT, WHOLE_HEADS, Rules
from spectrope.checkpoints.gguf.source import Source
from spectrope.core import ConfigError

YARN_KEYS = ("beta_fast", "beta_slow", "attn_factor", "ext_factor", "log_multiplier")
READ_BY_YARN = ("beta_fast", "beta_slow", "log_multiplier")  # Of architectures that read any.
KINDS = ("none", "linear", "yarn", "longrope")


def contradictions(file: GGUFFile, rules: Rules, source: Source | None) -> Iterator[Discrepancy]:
    """Statements of the file that cannot all hold, or that the source contradicts.

    Args:
        file: The file.
        rules: Of its architecture.
        source: What it was converted from.
    """
    yield from _scaling(file)
    yield from _factors(file)
    yield from _refused(file, rules)
    yield from _sections(file, rules, source)
    yield from _layers(file, source)
    width, head_dim = rotated_width(file, 0), width_of_heads(file, 0)
    if file.architecture in WHOLE_HEADS and width != head_dim:
        yield Discrepancy(
            "metadata of the file",
            f"rope.dimension_count {head_dim}, the width of heads",
            str(width),
            f"llama.cpp refuses a part of a head in {file.architecture!r}",
            by="required",
        )


def _layers(file: GGUFFile, source: Source | None) -> Iterator[Discrepancy]:
    """The number of layers, which must be the source's."""
    stated, wanted = file.count("block_count"), None
    if source is not None:
        wanted = source.declaration.get("num_hidden_layers", "n_layer")
    if isinstance(wanted, int) and wanted != stated:
        yield Discrepancy("metadata of the file", f"block_count {wanted}", str(stated))


def _scaling(file: GGUFFile) -> Iterator[Discrepancy]:
    kind, factor = file.get("rope.scaling.type"), file.get("rope.scaling.factor", "rope.scale_linear")
    if factor not in (None, 0):
        factor = file.number("rope.scaling.factor", "rope.scale_linear")
    if kind is not None and kind not in KINDS:
        told = f"one of {', '.join(KINDS)}"
        yield Discrepancy("metadata of the file", f"rope.scaling.type {told}", repr(kind), by="required")
    elif kind in ("linear", "yarn") and factor in (None, 0):
        note = "the scaling is lost: llama.cpp takes a factor of 1"
        yield Discrepancy(
            "metadata of the file", f"rope.scaling.type {kind!r}", "no factor", note, by="stated"
        )
    elif kind == "longrope" and not {LONG, SHORT} <= file.tensors.keys():
        missing = ", ".join(name for name in (LONG, SHORT) if name not in file.tensors)
        note = "the scaling is lost: llama.cpp divides by no factors"
        yield Discrepancy(
            "metadata of the file", "rope.scaling.type 'longrope'", f"no {missing}", note, by="stated"
        )
    elif kind == "none" and factor not in (None, 0, 1):
        note = "llama.cpp leaves the factor out"
        yield Discrepancy(
            "metadata of the file", f"rope.scaling.factor {factor:g}", "type 'none'", note, by="stated"
        )


def _factors(file: GGUFFile) -> Iterator[Discrepancy]:
    scaling = StatedScaling.of(file)
    if FREQS in file.tensors and scaling.factor != 1 and scaling.kind in ("linear", "yarn"):
        values = file.array(FREQS)
        if values.max(initial=1.0) > 1:
            yield Discrepancy(
                "metadata of the file",
                "one scaling of frequencies",
                f"{scaling.kind} by {scaling.factor:g}, and rope_freqs up to {values.max():g}",
                "llama.cpp applies both",
                by="expected",
            )


def _refused(file: GGUFFile, rules: Rules) -> Iterator[Discrepancy]:
    """Factor tensors that the runtime does not load: it refuses files with a tensor that it does not know."""
    loaded = rules.loads(file)
    if others := [name for name in (FREQS, LONG, SHORT) if name in file.tensors and name not in loaded]:
        kind = f", where rope.scaling.type is {file.get('rope.scaling.type') or 'not stated'}"
        where = f"{file.architecture!r}{kind if rules.factors == 'by type' else ''}"
        yield Discrepancy(
            "tensors of the file",
            f"no factors but {' and '.join(loaded)}" if loaded else "no frequency factors",
            ", ".join(others),
            f"llama.cpp refuses the file: it loads no such tensor in {where}",
            by="required",
        )


def _sections(file: GGUFFile, rules: Rules, source: Source | None) -> Iterator[Discrepancy]:
    """Sections of multimodal positions: they must fill the pairs, and be the source's."""
    sections = file.get("rope.dimension_sections")
    pairs = rotated_width(file, 0) // 2
    if rules.sections == "required" and sections is None:
        note = "llama.cpp refuses the file"
        yield Discrepancy("sections of the file", "rope.dimension_sections", "none", note, by="required")
    if not isinstance(sections, list):
        return
    if any(type(size) is not int for size in sections):
        raise ConfigError(f"{file.path}: {file.architecture}.rope.dimension_sections must be whole numbers.")
    if sum(sections) != pairs and rules.sections == "required":
        told = f"{sections}, {sum(sections)} in all"
        yield Discrepancy("sections of the file", f"{pairs} pairs in all", told, by="required")
    rotary = {} if source is None else source.declaration.get("rope_parameters", "rope_scaling") or {}
    wanted = rotary.get("mrope_section")
    if wanted and [*wanted, 0][: len(sections)] != sections[: len(wanted) + 1]:
        yield Discrepancy("sections of the file", str(list(wanted)), str(sections))


def unread(file: GGUFFile, rules: Rules) -> Iterator[str]:
    """Statements about positions in the file that llama.cpp does not read in this architecture."""
    name = file.architecture
    keys = [key for key in YARN_KEYS if file.get(f"rope.scaling.yarn_{key}") is not None]
    if ignored := [key for key in keys if not (rules.yarn and key in READ_BY_YARN)]:
        listed = ", ".join(f"rope.scaling.yarn_{key}" for key in ignored)
        yield f"llama.cpp does not read {listed} in {name!r}"
    if not rules.heats and file.get("attention.temperature_scale"):
        yield f"llama.cpp is not known to read attention.temperature_scale in {name!r}"
    if not rules.windows and file.get("attention.sliding_window"):
        yield f"llama.cpp does not read attention.sliding_window in {name!r}"
    if isinstance(file.get("attention.sliding_window_pattern"), list):
        yield f"llama.cpp reads attention.sliding_window_pattern in {name!r} as one number and not as a list"
    if rules.sections == "unread" and file.get("rope.dimension_sections") is not None:
        yield f"llama.cpp does not read rope.dimension_sections in {name!r}"
