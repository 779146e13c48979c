"""One layer: measured, compared with its declaration, and judged."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from jaxtyping import Float
from torch import Tensor, nn

from spectrope.checkpoints.adapters import Call, is_library_family, layer_name
from spectrope.checkpoints.adapters.compressed import compresses
from spectrope.checkpoints.audit.architectures import (
    KEYS_IN_TURN,
    ROUNDED_BIASES,
    VALUES_VARY,
    ambiguity,
    normalises_after,
    query_factor,
)
from spectrope.checkpoints.audit.between import between_findings
from spectrope.checkpoints.audit.bias import drowned
from spectrope.checkpoints.audit.compare import LOOKUP, Discrepancy, compare, rough_lines
from spectrope.checkpoints.audit.declaration import (
    contradictions,
    declared_clip,
    declared_layer,
    layer_type,
    temperature,
)
from spectrope.checkpoints.audit.declared_rope import rope_parameters
from spectrope.checkpoints.audit.declared_scale import declared_scale, declared_softcap
from spectrope.checkpoints.audit.encoding import LayerEncoding
from spectrope.checkpoints.audit.exercised import carried_out, misapplied
from spectrope.checkpoints.audit.far_layer import growth, size_tolerance
from spectrope.checkpoints.audit.fields import Declaration
from spectrope.checkpoints.audit.funnel import blind, funnel_parts, position_noise, read_funnel
from spectrope.checkpoints.audit.heads import by_head, masks_by_head, order_findings, values_by_head
from spectrope.checkpoints.audit.known import Known
from spectrope.checkpoints.audit.local import declared_pattern, pattern_findings
from spectrope.checkpoints.audit.measure import LayerMeasurement, measure
from spectrope.checkpoints.audit.mixtures import without_unknown
from spectrope.checkpoints.audit.nearest import named
from spectrope.checkpoints.audit.norms import behind_norms, freed_of_norms, freed_of_scaling, norm_findings
from spectrope.checkpoints.audit.places import Places, place_of, places_of
from spectrope.checkpoints.audit.precision import underflowing
from spectrope.checkpoints.audit.predictions import Remedy
from spectrope.checkpoints.audit.reach import Reach, reach_of
from spectrope.checkpoints.audit.records import AbsoluteRecord, LayerRecord, LayerVerdict, Position
from spectrope.checkpoints.audit.relative_fit import Reading, read_logits
from spectrope.checkpoints.audit.relative_parts import parts_of
from spectrope.checkpoints.audit.rows import slopes_by_row
from spectrope.checkpoints.audit.substitution import Substitution, substitution_of
from spectrope.checkpoints.audit.tables import table_findings
from spectrope.checkpoints.audit.weights import bucket_table, sinks_of
from spectrope.checkpoints.probes.constant_content import LayerKernel, convolves
from spectrope.core import ConfigError, dtype_name

BESIDE_POSITION = ("SPE201", "SPE202", "SPE404", "SPE405", "SPE406", "SPE407")
EXPLAIN_WEIGHTS, LATE_NORM = ("SPE201", "SPE202", "SPE406"), "SPE113"  # Causes of what is found beside them.
PRECISE = 1e-5  # Rounding up to which sizes alone tell a norm from a bias.
AMBIGUOUS = ("encoding", "rotated fraction")  # Respects in which a configuration may be read in two ways.


@dataclass(frozen=True)
class Subject:
    """The model whose layers are audited.

    Args:
        model: Without its head.
        declaration: Its configuration.
        ahead: Whether a stack's queries should see keys after them; None where that is open.
        varying: Whether the input of the stack of each dotted name varies over positions.
        length: Positions of the measurement.
        noise: Relative rounding error of the model's arithmetic.
        norms: Norms of queries and keys by name, as the model's class builds them.
        known: What was found of biases that layers have in common.
    """

    model: nn.Module
    declaration: Declaration
    ahead: Callable[[str], bool | None]
    varying: Mapping[str, bool]
    length: int
    noise: float
    norms: Mapping[str, nn.Module]
    known: Known = field(default_factory=Known)

    def declared(self, call: Call) -> LayerEncoding:
        """What the configuration, the architecture and the weights say of one layer."""
        stack, layer = layer_name(call.module)
        declaration = self.declaration.of(stack).at(layer)
        kind = layer_type(declaration, layer)
        declared = declared_layer(declaration, stack, layer, self.length)
        scale = declared_scale(declaration, layer, kind, call.q.shape[-1])
        unrotated = declared.turning is None
        factor = query_factor(declaration) * temperature(declaration, 0) if unrotated else 1.0
        return replace(
            declared,
            sees_future=self.ahead(stack),
            scale=None if scale is None else scale * factor,
            softcap=declared_softcap(declaration),
            sinks=sinks_of(self.model, call.module),
            values_vary=bool(declaration.get("rotary_value")) or declaration.model_type in VALUES_VARY,
            normalised_after=normalises_after(declaration) if declared.turning else None,
        )

    def known_of(self, call: Call) -> Known:
        """What was found of other layers' biases; nothing where biases are what is left of logits."""
        return self.known if call.logits is None else Known()

    def absolute(self, module: str) -> bool:
        """Whether the input of a layer carries an absolute term."""
        return next((moves for stack, moves in self.varying.items() if module.startswith(stack)), False)


def require_finite(model: nn.Module, kernel: LayerKernel) -> None:
    """Refuse queries or keys that are not finite, naming the layer and what in the model is not finite.

    Raises:
        ConfigError: If some are not.
    """
    sides = {"queries": kernel.call.q, "keys": kernel.call.k}
    wrong = [name for name, x in sides.items() if not bool(x.isfinite().all())]
    if not wrong:
        return
    stack, layer = layer_name(kernel.call.module)
    tensors = (*model.named_buffers(), *model.named_parameters())
    causes = (name for name, x in tensors if x.is_floating_point() and not bool(x.isfinite().all()))
    cause = next(causes, "")
    why = f"{cause} is not finite" if cause else "they overflow in this arithmetic; compute in float32"
    raise ConfigError(
        f"layer {f'{stack} {layer}'.strip()}: {' and '.join(wrong)} hold NaN or infinity: {why}."
    )


def layer_record(kernel: LayerKernel, subject: Subject) -> tuple[LayerRecord, list[Remedy]]:
    """Measure one layer and compare it with its declaration; what would put each finding right."""
    own = subject.declaration.of(layer_name(kernel.call.module)[0])
    subject = replace(subject, declaration=own)
    call, unexplained = carried_out(kernel.call, kernel.exercise)
    otherwise, declared = misapplied(kernel.call, call), subject.declared(kernel.call)
    if declared.relative is not None and call.bias is not None:  # Which depends on the content.
        call = replace(call, logits=call.unmasked(), bias=None, scale=None)
    kernel, module, length, noise = replace(kernel, call=call), call.module, subject.length, subject.noise
    stack, layer = place_of(subject.declaration, module)
    declaration = subject.declaration.at(layer)
    kernel = freed_of_scaling(kernel, subject.model, range(length))
    if clip := declared_clip(declaration):
        kernel = replace(kernel, sources=[x for one in kernel.sources for x in (one, one.clamp(-clip, clip))])
    behind = [*behind_norms(kernel, noise)] if declared.normalised_after else []
    if declared.normalised_after:
        kernel = freed_of_norms(kernel, subject.model, noise)
    places = places_of(declaration, module, length)
    sparse = [*_sparse(call, subject.declaration, length)]
    if call.sparse is not None:  # Whose counts of keys have been compared.
        kernel = replace(kernel, call=replace(call, bias=None))
        declared = replace(declared, mask=None) if sparse else declared
    reading, declared = _relative(kernel, subject, declared, places)
    if places is not None:
        kernel = places.square(kernel)
    measured = measure(kernel, declared, subject.absolute(module), noise, reading, subject.known_of(call))
    mixed = convolves(subject.model.get_submodule(module))
    if mixed:
        measured = _behind_convolution(measured)
    if declared.mask is not None and declared.mask.shape == "block-sparse":
        measured = replace(measured, encoding=replace(measured.encoding, mask=declared.mask))
    findings = _findings(kernel, subject, declared, measured) + behind + sparse
    if reading is not None:
        findings = [one for one in findings if one.what != LOOKUP] + [*reading.findings]
    if not any(finding.code in EXPLAIN_WEIGHTS for finding in findings):
        findings += unexplained
    effective, heads = measured.encoding, measured.heads
    doubt = ambiguity(declaration, layer_type(declaration, layer))
    if doubt:
        findings = [finding for finding in findings if finding.what not in AMBIGUOUS]
    if mixed:
        findings = [finding for finding in findings if finding.code in BESIDE_POSITION]
    known = is_library_family(declaration.model_type)
    verdict, reason = judge(declared, effective, findings, known=known)
    if places is not None and (unseen := blind(declaration, length, noise)):
        verdict, reason = "cannot tell", unseen
    table = declared.buckets and bucket_table(subject.model, module, declared.buckets.n_buckets)
    if lost := _lost(call, declared, effective, findings, table, noise):
        verdict, reason = "cannot tell", lost
    if (
        verdict == "differs"
        and {one.what for one in findings} == {"encoding"}
        and _turns_nothing(call, declared)
    ):
        verdict, reason = "cannot tell", "queries and keys are all zero, which hides how they turn"
    if verdict == "differs" and (small := underflowing(call)):
        verdict = "cannot tell"
        reason = f"{small} underflow in {dtype_name(call.q.dtype)}; compute in float32"
    if mixed and verdict != "differs":
        verdict, reason = "cannot tell", "a convolution mixes tokens before the kernel, which hides positions"
    if doubt and verdict != "differs":
        verdict, reason = "declaration ambiguous", doubt
    record = LayerRecord(
        module=module,
        stack=stack,
        layer=layer,
        position=_shared([head.position for head in heads]),
        effective=effective,
        declared=declared,
        verdict=verdict,
        findings=tuple(findings) if verdict == "differs" else (),
        reason=reason,
        scale=effective.scale or 0.0,
        heads=heads,
        reach=layer_reach(declared, effective, declaration, length, noise),
    )
    return record, _remedies(record, subject, measured, otherwise)


def _turns_nothing(call: Call, declared: LayerEncoding) -> bool:
    """Whether a declared rotation has nothing to turn."""
    return declared.turning is not None and not bool(call.q.any()) and not bool(call.k.any())


def _behind_convolution(measured: LayerMeasurement) -> LayerMeasurement:
    """What is known of a layer whose queries or keys are no multiples of those before a convolution.

    Few positions differ, so that pairs that happen to keep their norms look as if they rotated.
    """
    encoding = measured.encoding
    if encoding.turning is not None:
        encoding = replace(encoding, kind="unknown", turning=None)
    return replace(measured, encoding=encoding, sides=measured.sides.without_gains())


def _lost(
    call: Call,
    declared: LayerEncoding,
    effective: LayerEncoding,
    findings: list[Discrepancy],
    table: Float[Tensor, "buckets h"] | None,
    noise: float,
) -> str:
    """Why biases could not be seen, where that alone differs; "" if they could."""
    if not findings or any(one.what != "encoding" for one in findings):
        return ""
    sizes: list[float] = [] if table is None else (table.amax(0) - table.amin(0)).tolist()
    if declared.slopes is not None:
        longest = call.allowed.shape[-1] - 1
        sizes = [abs(slope) * longest for slope in declared.slopes]
    if not any(sizes):
        return ""
    heads = drowned(call, sizes, noise)
    enough = len(heads) == len(sizes) if effective.kind == "none" else heads
    named = ", ".join(map(str, heads))
    return f"rounding of the logits hides the biases of heads {named}; compute in float32" if enough else ""


def _sparse(call: Call, declaration: Declaration, length: int) -> Iterator[Discrepancy]:
    """Where attention in bands or blocks sees other keys than declared."""
    if call.sparse is None:
        return
    pattern = declared_pattern(declaration, *layer_name(call.module), length)
    if pattern is not None:
        yield from pattern_findings(call, pattern)


def _relative(
    kernel: LayerKernel, subject: Subject, declared: LayerEncoding, places: Places | None
) -> tuple[Reading | None, LayerEncoding]:
    """What logits with a relative term are made of, and the declaration, without what cannot be compared."""
    if declared.relative is None:
        return None, declared
    call, states, term = kernel.call, kernel.states, declared.relative
    parts = None
    if call.logits is not None and states is not None:
        if places is None:
            parts = parts_of(subject.model, call.module, states, term, subject.declaration)
        else:
            parts = funnel_parts(subject.model, call.module, states)
    if parts is None:
        return None, replace(declared, kind=None, relative=None, scale=None)
    if places is not None:
        noise = position_noise(subject.declaration, subject.length, subject.noise)
        return read_funnel(call, parts, term, noise, places), declared
    return read_logits(call, parts, term, subject.noise), declared


def remedies_of(record: LayerRecord, known: list[Remedy], model: nn.Module) -> list[Remedy]:
    """A remedy per finding of a record, also of those that came in comparison with other layers."""
    module = model.get_submodule(record.module)
    late = record.findings[len(known) :]
    return [*known, *(Remedy(module, one, _scaled_as_others(one, record)) for one in late)]


BEYOND = "no plain pass over the audited length shows it"


def beyond(
    record: LayerRecord | AbsoluteRecord, known: list[Remedy], model: nn.Module, reason: str = BEYOND
) -> list[Remedy]:
    """Remedies of findings that no sequence of tokens of the audited length shows, for that reason."""
    module = model.get_submodule(record.table if isinstance(record, AbsoluteRecord) else record.module)
    return [Remedy(module, one, reason) for one in record.findings[len(known) :]]


def _scaled_as_others(finding: Discrepancy, record: LayerRecord) -> Substitution:
    """The factor on dot products that layers like this one have."""
    ratio = float(finding.expected.partition(" ")[0]) / record.scale
    return lambda given: replace(given, q=given.q * ratio)


def _remedies(
    record: LayerRecord, subject: Subject, measured: LayerMeasurement, otherwise: frozenset[str]
) -> list[Remedy]:
    """What would put each finding of a layer right."""
    declared, table = record.declared, None
    if record.findings and declared.buckets is not None:
        table = bucket_table(subject.model, record.module, declared.buckets.n_buckets)
    module = subject.model.get_submodule(record.module)
    if compresses(module):
        return [Remedy(module, one, "compressed keys follow those of the tokens") for one in record.findings]
    return [
        Remedy(module, one, substitution_of(one, declared, measured, table, subject.length, otherwise))
        for one in record.findings
    ]


def _findings(
    kernel: LayerKernel, subject: Subject, declared: LayerEncoding, measured: LayerMeasurement
) -> list[Discrepancy]:
    """Every respect in which a layer differs, of the layer or of single heads."""
    call, length, noise = kernel.call, subject.length, subject.noise
    _, layer = layer_name(call.module)
    declaration, effective = subject.declaration.at(layer), measured.encoding
    findings = compare(declared, effective, length, noise)
    findings = by_head(findings, measured.sides, declared.turning, length, noise)
    findings = masks_by_head(findings, call, declared, length)
    findings = values_by_head(findings, call, declared.values_vary, noise)
    if declared.turning is not None:
        parameters = rope_parameters(declaration, layer_type(declaration, layer))
        findings = named(findings, declaration, parameters, effective.turning, length)
    if declared.buckets is not None:
        table = bucket_table(subject.model, call.module, declared.buckets.n_buckets)
        findings = table_findings(findings, call, table, declared.buckets, noise, subject.known_of(call))
    if declared.slopes is not None and declaration.model_type not in ROUNDED_BIASES:
        findings += rough_lines(measured.rough)
    findings = slopes_by_row(findings, call, declared, noise)
    said = effective.describe(declared.turning)
    findings = without_unknown(findings, call, declared, effective)
    if not any(finding.code == LATE_NORM for finding in findings):
        findings += norm_findings(kernel, subject.model, subject.norms, noise)
    if declared.query_scale is not None and not any(one.code == "SPE403" for one in findings):
        findings += growth(call, declaration, call.module, range(length), size_tolerance(noise))
    every = [*measured.sides.of.values()]
    turning = [one for one in every if one.rotation is not None]
    unfound = any(one.gain is None for one in turning or every * (noise <= PRECISE))
    normalised = declared.normalised_after or effective.normalised_after
    if unfound and not normalised and not findings and is_library_family(declaration.model_type):
        findings += between_findings(measured.sides, kernel.sources, noise)
    if declaration.model_type not in KEYS_IN_TURN:
        findings += order_findings(measured.sides)
    return findings + [Discrepancy(what, both, said) for what, both in contradictions(declaration, layer)]


def layer_reach(
    declared: LayerEncoding, effective: LayerEncoding, declaration: Declaration, length: int, noise: float
) -> Reach | None:
    """How far a measured rotation turns, where the configuration states a length."""
    trained = declaration.get("max_position_embeddings", "n_positions", "max_seq_len")
    if effective.turning is None or not trained:
        return None
    base = declared.turning.base if declared.turning else None
    base = base or effective.turning.fit().base
    return reach_of(effective.turning, base, int(trained), length, noise)


def judge(
    declared: LayerEncoding, effective: LayerEncoding, findings: list[Discrepancy], *, known: bool = False
) -> tuple[LayerVerdict, str]:
    """The verdict on a layer, and why where it is neither a match nor a difference.

    Args:
        declared: By the configuration.
        effective: Measured.
        findings: Where they differ.
        known: Whether the architecture's own code is known to apply what is declared.
    """
    if declared.kind is None and not findings:
        return "undeclared", "the configuration declares no known encoding for this layer"
    family_alone = all(finding.what == "encoding" for finding in findings)
    if declared.kind == "bucketed bias" and effective.kind == "none" and family_alone:
        return "cannot tell", "the table holds the same value in every bucket"
    if effective.kind == "unknown" and family_alone and not known:
        return "cannot tell", "the kernel varies with position, but not like any known family"
    if findings:
        return "differs", ""
    wanted, got = declared.turning, effective.turning
    if wanted is None or got is None or got.gain is not None:
        return "matches", ""
    if wanted.gain != 1 or declared.normalised_after is False:
        return "cannot tell", "the vectors before rotation were not found, so factors on pairs are unknown"
    return "matches", ""


def _shared(positions: list[Position]) -> Position:
    return positions[0] if len(set(positions)) == 1 else "mixed"
