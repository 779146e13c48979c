"""A language model on some sequences, rerun from the heads of any attention module.

Blocks before the cut return their input, the block at the cut receives its stored input, and its attention,
if it does nothing else, returns the projection of the changed heads. An encoder before the cut is not run at
all. The rest runs as it is, through the library's own code, whatever a block does with its attention.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from spectrope.checkpoints.ablation.cuts import Before, copied, handing_on, hit_and_loss
from spectrope.checkpoints.ablation.rotary import (
    RotatedHeads,
    SiteMeans,
    needs_rotation,
    rotations_recorded,
)
from spectrope.checkpoints.ablation.subject import CheckpointSubject
from spectrope.checkpoints.adapters import (
    Enough,
    after,
    before,
    first_of,
    in_parts,
    linear_weight,
    running,
    states_of,
    with_states,
)
from spectrope.checkpoints.sequences import Sequences
from spectrope.lab import Variant, changes_in, fills_of


@dataclass(frozen=True)
class CheckpointStages:
    """A language model on some sequences; it returns mean loss and accuracy of each.

    Its "layers" are attention modules in the order in which they run: those of an encoder, then of a decoder,
    whose blocks hold two.

    Args:
        subject: The model.
        data: The sequences, on its device.
        means: Mean output of each site's heads, (heads * width,), if any fill needs them.
        donors: Heads of each site on other sequences, with shape (b, t, heads * width), likewise.
        rest: Auxiliary outputs of modules and blocks that later ones use, by name.
        site_means: Means of each site's queries, keys and lags, if any fill changes rotations.
    """

    subject: CheckpointSubject
    data: Sequences
    means: Sequence[Tensor] | None = None
    donors: Sequence[Tensor] | None = None
    rest: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    site_means: Sequence[SiteMeans] | None = None

    @property
    def n_layers(self) -> int:
        return len(self.subject.sites)

    def start(self) -> Before:
        return Before(self.until(self.subject.sites[0].block)[0])

    def fork(self, layer: int, x: Before, changes: Sequence[Variant]) -> "CheckpointFork":
        """Runs the module once."""
        heads: list[Tensor] = []
        rotated: list[RotatedHeads] = []
        name = self.subject.sites[layer].projection
        recording = contextlib.nullcontext()
        if any(map(needs_rotation, fills_of(changes))):
            recording = rotations_recorded(self.subject.model, self.subject.rotations, rotated.append)

        def note(_: str, args: Any, given: Any) -> None:
            heads.append(args[0])
            raise Enough

        noting = before(self.subject.model, [name], note)
        with recording, self.entered(layer, x), noting, contextlib.suppress(Enough):
            self.subject.run(self.data, memory=x.memory)
        for call in rotated[:1]:
            call.require_bare(heads[0])
        return CheckpointFork(self, layer, x, heads[0], rotated[0] if rotated else None)

    def read(self, x: Before) -> Tensor:
        *skipped, (last, parts) = self._blocks(self.n_layers - 1)
        with (
            self._passing(skipped),
            running(self.subject.model.get_submodule(last), lambda *_, **__: in_parts(x.x, parts)),
        ):
            return self.scores(1, x.memory)[0]

    def until(self, block: str, memory: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Input of a block, and outputs of an encoder before it; the pass stops there."""
        states: list[Tensor] = []
        put_out: list[Tensor] = [] if memory is None else [memory]

        def note(_: str, args: Any, given: Any) -> None:
            states.append(states_of(args, given))
            raise Enough

        def remember(_: str, output: Any) -> None:
            put_out.append(output[0])

        encoder = [self.subject.encoder] if self.subject.sites[0].role else []
        with (
            after(self.subject.model, encoder, remember),
            before(self.subject.model, [block], note),
            contextlib.suppress(Enough),
        ):
            self.subject.run(self.data, memory=memory)
        return states[0], put_out[0] if put_out else None

    @contextlib.contextmanager
    def entered(self, layer: int, x: Before) -> Iterator[None]:
        """Nothing before a site is computed: its block is given its state, once per copy."""
        block, blocks = self.subject.sites[layer].block, self._blocks(layer)
        names = [name for name, _ in blocks]

        def give(_: str, args: Any, given: Any) -> Any:
            copies = len(states_of(args, given)) // len(x.x)
            return with_states(args, given, x.x.repeat(copies, 1, 1))

        with contextlib.ExitStack() as stack:
            stack.enter_context(self._passing(blocks[: names.index(block)]))
            stack.enter_context(before(self.subject.model, [block], give))
            for place, heads in enumerate(x.held, layer - len(x.held)):
                stack.enter_context(self.putting_out(place, heads, self.projected(place, heads)))
            yield

    @contextlib.contextmanager
    def putting_out(self, layer: int, heads: Tensor, output: Tensor | None) -> Iterator[None]:
        """A site whose heads are these, for every copy of the sequences that a pass holds.

        Args:
            layer: Place of the site.
            heads: Side by side, with shape (n, t, f).
            output: What the module makes of them; None where more happens in it, and it runs again.
        """
        site, model = self.subject.sites[layer], self.subject.model
        if output is None:
            with before(model, [site.projection], lambda _, args, given: ((copied(heads, args[0]),), {})):
                yield
            return

        def put(*args: Any, **given: Any) -> Any:
            return in_parts(
                copied(output, states_of(args, given)), site.parts, self.rest.get(site.module, ())
            )

        with running(model.get_submodule(site.module), put):
            yield

    def projected(self, layer: int, heads: Tensor) -> Tensor | None:
        """Output of a site's module for given heads, if the module does nothing else."""
        gives = self.subject.sites[layer].gives
        if gives == "more":
            return None
        return heads if gives == "heads" else self.subject.projection(layer)(heads)

    def _blocks(self, layer: int) -> list[tuple[str, int]]:
        """The blocks of the stack that a site lies in."""
        return self.subject.stacks[self.subject.sites[layer].stack]

    @contextlib.contextmanager
    def _passing(self, blocks: Sequence[tuple[str, int]]) -> Iterator[None]:
        """Blocks that hand their input on."""
        with contextlib.ExitStack() as stack:
            for name, parts in blocks:
                passing = handing_on(parts, self.rest.get(name, ()))
                stack.enter_context(running(self.subject.model.get_submodule(name), passing))
            yield

    def scores(self, copies: int, memory: Tensor | None = None) -> Float[Tensor, "v b 2"]:
        """Mean loss and accuracy of every sequence in every copy, from a pass of the model.

        Args:
            copies: How many.
            memory: Outputs of the encoder for one copy, if it need not run.
        """
        scored = self.data.scored
        logits = self.subject.scored_logits(self.data, copies, memory)
        hit, loss = hit_and_loss(logits, self.data.targets[scored].repeat(copies))
        each = torch.stack([loss, hit], 1).unflatten(0, (copies, -1))
        owner = scored.nonzero()[:, 0]
        sums = each.new_zeros(copies, len(scored), 2).index_add(1, owner, each)
        return sums / scored.sum(1)[:, None]

    def filled(self, fill: str, layer: int, heads: Tensor) -> Tensor:
        """What takes the place of a site's heads, side by side, in shape of theirs (b, t, f)."""
        if fill == "zero":
            return torch.zeros_like(heads)
        source = self.means if fill == "mean" else self.donors
        assert source is not None
        return source[layer].to(heads).expand_as(heads)

    def changed(
        self,
        heads: Tensor,
        layer: int,
        variants: Sequence[Variant],
        filled: Callable[[str], Tensor] | None = None,
    ) -> Tensor:
        """Heads of copies (v * b, t, f) with each copy's own changes at this site made."""
        changes = [changes_in(variant, layer) for variant in variants]
        width, copies = self.subject.sites[layer].width, heads.unflatten(0, (len(variants), -1)).clone()
        if filled is None:
            filled = partial(self.filled, layer=layer, heads=copies[0])
        fills = {fill: filled(fill) for fill in fills_of(changes)}
        for row, variant in enumerate(changes):
            for ablation in variant:
                columns = slice(ablation.head * width, (ablation.head + 1) * width)
                copies[row, :, :, columns] = fills[ablation.fill][..., columns]
        return copies.flatten(0, 1)


@dataclass(frozen=True)
class CheckpointFork:
    """An attention module that has been run once.

    Args:
        stages: The model and the sequences.
        layer: Place of the site.
        x: The state before it.
        heads: Its heads side by side, nothing changed, with shape (b, t, f).
        rotated: The call of its kernel, if any fill changes its rotation.
    """

    stages: CheckpointStages
    layer: int
    x: Before
    heads: Float[Tensor, "b t f"]
    rotated: RotatedHeads | None = None
    _fills: dict[str, Tensor] = field(default_factory=dict)

    def advance(self, changes: Variant) -> Before:
        sites, following = self.stages.subject.sites, self.layer + 1
        if following < len(sites) and sites[following].block == sites[self.layer].block:
            changed = self.stages.changed(self.heads, self.layer, [changes])
            return replace(self.x, held=(*self.x.held, changed))
        with self._cut([changes]):
            if following < len(sites):
                x, memory = self.stages.until(sites[following].block, self.x.memory)
                crossed = sites[following].stack != sites[self.layer].stack
                return Before(x, memory if crossed else self.x.memory)
            return Before(self._behind(sites[self.layer].stack), self.x.memory)

    def finish(self, variants: Sequence[Variant]) -> Tensor:
        with self._cut(variants), self._later(variants):
            return self.stages.scores(len(variants), self.x.memory)

    def _behind(self, stack: str) -> Tensor:
        """Output of the last block of a stack, at the end of a pass that stops there."""
        states: list[Tensor] = []

        def note(_: str, output: Any) -> None:
            states.append(first_of(output))
            raise Enough

        subject = self.stages.subject
        last, _ = subject.stacks[stack][-1]
        with after(subject.model, [last], note), contextlib.suppress(Enough):
            subject.run(self.stages.data, memory=self.x.memory)
        return states[0]

    @contextlib.contextmanager
    def _cut(self, variants: Sequence[Variant]) -> Iterator[None]:
        """The site with each copy's own changes made; its attention is not run again where that can be."""
        stages = self.stages
        gives = stages.subject.sites[self.layer].gives
        with stages.entered(self.layer, self.x):
            if gives == "projected":
                heads, output = self.heads, self._projected(variants)
            else:
                copies = self.heads.repeat(len(variants), 1, 1)
                heads = stages.changed(copies, self.layer, variants, self._filled)
                output = heads if gives == "heads" else None
            with stages.putting_out(self.layer, heads, output):
                yield

    def _projected(self, variants: Sequence[Variant]) -> Float[Tensor, "vb t c"]:
        """The projection of each copy's heads."""
        weight = linear_weight(self.stages.subject.projection(self.layer))
        assert weight is not None
        return torch.cat([self._corrected(weight, variant) for variant in variants])

    @cached_property
    def _intact(self) -> Float[Tensor, "b t c"]:
        """The projection of the heads, nothing changed, computed once for all variants."""
        return self.stages.subject.projection(self.layer)(self.heads)

    def _corrected(self, weight: Tensor, variant: Variant) -> Float[Tensor, "b t c"]:
        """The projection of changed heads, through their columns alone."""
        intact, width = self._intact, self.stages.subject.sites[self.layer].width
        for ablation in changes_in(variant, self.layer):
            columns = slice(ablation.head * width, (ablation.head + 1) * width)
            fill = self._filled(ablation.fill)[..., columns]
            intact = intact + F.linear(fill - self.heads[..., columns], weight[:, columns])
        return intact

    def _filled(self, fill: str) -> Float[Tensor, "b t f"]:
        """What takes the place of all heads, computed once for the variants of all heads."""
        if self.rotated is None or not needs_rotation(fill):
            return self.stages.filled(fill, self.layer, self.heads)
        if fill not in self._fills:
            means = self.stages.site_means
            self._fills[fill] = self.rotated.output(fill, None if means is None else means[self.layer])
        return self._fills[fill]

    @contextlib.contextmanager
    def _later(self, variants: Sequence[Variant]) -> Iterator[None]:
        """Changes at later sites, made as these run."""
        with contextlib.ExitStack() as stack:
            for layer in range(self.layer + 1, self.stages.n_layers):
                if any(changes_in(variant, layer) for variant in variants):
                    act = self._changing(layer, variants)
                    name = self.stages.subject.sites[layer].projection
                    stack.enter_context(before(self.stages.subject.model, [name], act))
            yield

    def _changing(self, layer: int, variants: Sequence[Variant]) -> Callable[[str, Any, Any], Any]:
        return lambda _, args, given: ((self.stages.changed(args[0], layer, variants), *args[1:]), given)
