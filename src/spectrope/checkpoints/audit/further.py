"""Further passes of families whose kernels depend on more than tokens: what differs in them."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from spectrope.checkpoints.adapters import (
    FAILURES,
    POOLS,
    Call,
    before,
    fixed_positions,
    is_sound_encoder,
    layer_name,
    trained_length,
)
from spectrope.checkpoints.adapters.sparse import attention_for, full_attention_up_to, sparse_modules
from spectrope.checkpoints.audit.compare import Discrepancy, is_near
from spectrope.checkpoints.audit.declared_scale import declared_scale
from spectrope.checkpoints.audit.exercised import carried_out
from spectrope.checkpoints.audit.far import switches_after
from spectrope.checkpoints.audit.funnel import blind, position_noise
from spectrope.checkpoints.audit.local import (
    BANDED,
    BandPattern,
    BlockPattern,
    declared_pattern,
    pattern_findings,
    random_findings,
)
from spectrope.checkpoints.audit.places import places_of
from spectrope.checkpoints.audit.probe import BothProbes
from spectrope.checkpoints.audit.records import LayerRecord
from spectrope.checkpoints.audit.relative import declared_relative
from spectrope.checkpoints.audit.sections import (
    PictureLayer,
    chosen_places,
    declared_axes,
    has_sections,
    reach_of_pictures,
)
from spectrope.checkpoints.audit.segments import TwoStreams, funnel_segments
from spectrope.checkpoints.audit.text import FEW
from spectrope.checkpoints.probes.constant_content import (
    ELSEWHERE,
    LayerKernel,
    attending_modules,
    attention_modules,
    constant_content,
)
from spectrope.checkpoints.probes.far import far_kernels
from spectrope.core import SpectropeError, dtype_name

CROSSING = "attention of the decoder to the encoder"
OTHERS, SECOND = "memories and segments", "the second stream of queries"
PICTURES = "tokens of pictures, whose time, height and width differ"
SHORT = 16  # Tokens of an input that gets full attention.
FEWER = 77  # Tokens of a pass after the longest, which end in no whole block of a kernel.
Findings = Mapping[str, list[Discrepancy]]  # By dotted name of the module.


@dataclass(frozen=True, eq=False)
class FurtherPasses:
    """Further passes of one model.

    Args:
        probe: Both probes of the model.
        length: Positions of its audit.
        records: Of its layers in the first pass.
        left_out: Receives what did not run.
        had: Receives which inputs did.
        unread: Receives modules of a decoder that attend to the encoder where nothing else attends.
    """

    probe: BothProbes
    length: int
    records: Sequence[LayerRecord]
    left_out: list[str] = field(default_factory=list)
    had: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)

    def findings(self) -> Findings:
        """What differs in them."""
        found: dict[str, list[Discrepancy]] = defaultdict(list)
        sound = {one.module for one in self.records if one.verdict == "matches"}
        family = self.probe.declaration.model_type
        passes = self._with_global_tokens() if family in BANDED else ()
        if family == "xlnet":
            passes = self._two_streams()
        if family in POOLS:
            passes = self._segments()
        if 0 < full_attention_up_to(self.probe.inner) < self.length:
            passes = (*self._random_blocks(), *self._short_inputs())
        if has_sections(self.probe.declaration):
            passes = (*passes, *self._pictures())
        if getattr(self.probe.inner.config, "is_encoder_decoder", False):
            passes = (*passes, *self._crossing())
        passes = (*passes, *self._fewer_tokens())
        for module, one in passes:
            if module in sound:
                found[module].append(one)
        return found

    def _kernels(self, modules: list[str], **given: object) -> list[LayerKernel]:
        inner = self.probe.inner
        kernels: list[LayerKernel] = []
        constant_content(
            inner, modules, self.length, kernels.append, seed=self.probe.seed, exercised=modules, given=given
        )
        return kernels

    def _two_streams(self) -> list[tuple[str, Discrepancy]]:
        """Memories, segments, an order of tokens and a second stream of queries."""
        probe, modules = self.probe, [one.module for one in self.records]
        term = declared_relative(probe.declaration, "")
        assert term is not None
        both = TwoStreams(probe.inner, modules, probe.declaration, term, probe.noise, probe.seed)
        for passes, what in ((both, SECOND), (replace(both, second=False), OTHERS)):
            try:
                found = passes.findings()
                self.had.append(f"{OTHERS}, and {SECOND}" if what == SECOND else OTHERS)
                return found
            except FAILURES:  # The library's second stream does not run in low precision.
                dtype = dtype_name(next(probe.inner.parameters()).dtype)
                self.left_out.append(f"{what}, with which the model does not run in {dtype}")
        return []

    def _segments(self) -> Iterator[tuple[str, Discrepancy]]:
        """Tokens of two segments, the first of them <cls>."""
        inner, declaration = self.probe.inner, self.probe.declaration
        if blind(declaration, self.length, self.probe.noise):
            return
        types = torch.where(torch.arange(self.length) < self.length // 3, 0, 1)
        types[0] = 2
        given = {"token_type_ids": types.expand(2, -1).to(next(inner.parameters()).device)}
        for kernel in self._kernels([one.module for one in self.records], **given):
            module = kernel.call.module
            places, term = places_of(declaration, module, self.length), declared_relative(declaration, "")
            assert places is not None
            assert term is not None
            noise = position_noise(declaration, self.length, self.probe.noise)
            found = funnel_segments(inner, kernel, places, term, types, noise)
            yield from ((module, one) for one in found)
        self.had.append("tokens of two segments")

    def _with_global_tokens(self) -> Iterator[tuple[str, Discrepancy]]:
        """The first, the last and a token in the middle see all others, and are seen by them."""
        device = next(self.probe.inner.parameters()).device
        mask = torch.zeros(2, self.length, dtype=torch.long, device=device)
        at = (0, self.length // 2, self.length - 1)
        mask[:, at] = 1
        for kernel in self._kernels(sparse_modules(self.probe.inner), global_attention_mask=mask):
            module = kernel.call.module
            call, unexplained = carried_out(kernel.call, kernel.exercise)
            pattern = declared_pattern(self.probe.declaration, *layer_name(module), self.length)
            assert isinstance(pattern, BandPattern)
            about = "mask with global tokens"
            others = [*pattern_findings(call, replace(pattern, at=at), about)] or [*_projections(kernel)]
            yield from ((module, one) for one in others)
            yield from ((module, _of_global(one)) for one in unexplained)
            yield from ((module, one) for one in self._scale(call.scale, module, call.q.shape[-1]))
        self.had.append("tokens with global attention")

    def _scale(self, scale: float | None, module: str, width: int) -> Iterator[Discrepancy]:
        wanted = declared_scale(self.probe.declaration, layer_name(module)[1], "", width)
        if wanted is not None and scale is not None and not is_near(wanted, scale, self.probe.noise):
            one = Discrepancy(
                "attention scale", f"{wanted:.5g}", f"{scale:.5g}", residual=abs(scale / wanted - 1)
            )
            yield _of_global(one)

    def _random_blocks(self) -> Iterator[tuple[str, Discrepancy]]:
        """Random blocks are drawn as in training."""
        for kernel in self._kernels(sparse_modules(self.probe.inner)):
            module, run = kernel.call.module, kernel.call.sparse
            pattern = declared_pattern(self.probe.declaration, *layer_name(module), self.length)
            if run is not None and isinstance(pattern, BlockPattern):
                found = random_findings(run.weights(training=True), pattern, run.padded)
                yield from ((module, one) for one in found)

    def _pictures(self) -> list[tuple[str, Discrepancy]]:
        """Tokens of pictures, whose positions have several axes."""
        probe = self.probe
        trained = trained_length(probe.model) or self.length
        places = chosen_places(reach_of_pictures(probe.declaration, self.records, trained))
        try:
            kernels = far_kernels(probe.inner, [one.module for one in self.records], places, probe.seed)
        except (SpectropeError, *FAILURES):  # which models that take one position per token raise
            kernels = {}
        known = [
            PictureLayer(axes, probe.declaration, one, kernels[one.module].call, places, probe.noise)
            for one in self.records
            if one.module in kernels and (axes := declared_axes(probe.declaration, one)) is not None
        ]
        turning = [one for one in self.records if one.declared.turning is not None]
        if known:
            self.had.append(PICTURES)
        if len(known) < len(turning):
            self.left_out.append(PICTURES)
        elif untold := max((one.untold for one in known), default=0):
            self.left_out.append(f"{PICTURES}, in {untold} pairs that turn too slowly to be told")
        return [(one.record.module, wrong) for one in known for wrong in one.findings()]

    def _short_inputs(self) -> Iterator[tuple[str, Discrepancy]]:
        """Inputs of few tokens get full attention."""
        inner, sparse = self.probe.inner, set(sparse_modules(self.probe.inner))
        with attention_for(self.probe.model, SHORT):
            modules = [name for name in attention_modules(inner) if name in sparse]
            records = self.probe.measured(modules, SHORT, exercised=False).records
        for record in records:
            note = f"of {SHORT} tokens, which get full attention"
            yield from ((record.module, replace(one, note=note)) for one in record.findings)

    def _crossing(self) -> list[tuple[str, Discrepancy]]:
        """A decoder attends to its encoder without positions, and to all of it."""
        inner, tokens = self.probe.inner, min(FEWER, self.length)
        crossing = [name for name, elsewhere in attending_modules(inner).items() if elsewhere]
        if not crossing:
            return []
        layers = {(one.stack, one.layer): one.module for one in self.records}
        calls: list[Call] = []
        try:
            with before(inner, crossing, _with_equal_keys):
                constant_content(
                    inner, crossing, tokens, lambda kernel: calls.append(kernel.call), seed=self.probe.seed
                )
        except (SpectropeError, *FAILURES):
            self.left_out.append(f"{CROSSING}, at which the model did not run")
            return []
        alone = [call.module for call in calls if layer_name(call.module) not in layers]
        (self.left_out if alone else self.had).append(CROSSING)
        self.unread.extend(dict.fromkeys(alone))
        return [
            (layers[layer], one)
            for call in calls
            if (layer := layer_name(call.module)) in layers
            for one in crossing_findings(call, self.probe.noise)
        ]

    def _fewer_tokens(self) -> Iterator[tuple[str, Discrepancy]]:
        """Fewer tokens than before: a schedule that has grown returns, and none has switched yet.

        One layer of each kind is compared, and all where one differs.
        """
        probe = self.probe
        switch = switches_after(probe.declaration) or self.length
        tokens = min(FEWER, 3 * self.length // 4, switch - 1)
        if probe.declaration.model_type in POOLS or tokens < SHORT or fixed_positions(probe.inner):
            return
        kinds: dict[object, str] = {}
        for one in self.records:
            kinds.setdefault((one.stack, one.declared.describe(), one.declared.mask), one.module)
        fewer = f"{FEW}{'positions' if is_sound_encoder(probe.inner) else 'tokens'} ({tokens})"
        with attention_for(probe.model, tokens):
            sparse = full_attention_up_to(probe.inner) > 0
            modules = attention_modules(probe.inner) if sparse else [one.module for one in self.records]
            run = partial(probe.measured, modules, tokens)
            try:
                records = run(compared=kinds.values()).records
                records = run().records if any(one.findings for one in records) else records
            except (SpectropeError, *FAILURES):  # which models of one length raise
                self.left_out.append(f"{fewer}, with which the model did not run")
                return
        for record in records:
            for one in record.findings:
                note = "; ".join(filter(None, (one.note, f"in a pass of {tokens} tokens after longer ones")))
                yield record.module, replace(one, note=note)
        self.had.append(fewer)


def _with_equal_keys(_: str, args: Any, given: dict[str, Any]) -> Any:
    """Arguments of cross-attention with the encoder's first state at every position."""
    sides = {side: given[side] for side in ELSEWHERE if isinstance(given.get(side), Tensor)}
    return args, given | {side: states[:, :1].expand_as(states) for side, states in sides.items()}


def crossing_findings(call: Call, noise: float) -> Iterator[Discrepancy]:
    """Where constant content gives logits that differ, or keys that are hidden.

    Args:
        call: Of attention from one sequence to another.
        noise: Relative rounding error of the arithmetic.
    """
    logits = call.unmasked().double()
    gap, size = (logits.amax((2, 3)) - logits.amin((2, 3))).max(), logits.abs().max()
    if not bool(gap <= 50 * noise * size):
        text = f"logits vary by {gap.item():.3g} over equal queries and keys"
        yield Discrepancy("position in cross-attention", "none", text, by="expected")
    if not bool(call.allowed.all()):
        yield Discrepancy("mask of cross-attention", "none", "some keys are hidden", by="expected")


def _of_global(one: Discrepancy) -> Discrepancy:
    return replace(one, what=f"{one.what} with global tokens")


def _projections(kernel: LayerKernel) -> Iterator[Discrepancy]:
    """Where tokens with global attention use the projections of others."""
    run = kernel.call.sparse
    missing = [] if run is None else [name for name in run.form.of_global if name not in run.of_global]
    if missing:
        names = ", ".join(missing)
        yield Discrepancy("attention function with global tokens", f"{names} of their own", "not used")


def with_further(record: LayerRecord, found: Findings) -> LayerRecord:
    """A record with what differs in further passes, where the first one shows no difference."""
    wrong = found.get(record.module, [])
    return replace(record, verdict="differs", findings=tuple(wrong)) if wrong else record


def not_exercised(model: nn.Module, length: int) -> tuple[str, ...]:
    """What an audit of that length leaves out, in words."""
    blocked = full_attention_up_to(model)
    if blocked == 0 or length > blocked:
        return ()
    return (f"block-sparse attention, which inputs of more than {blocked} tokens get",)
