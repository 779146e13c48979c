"""A language model on some sequences, cut at every layer's heads, by running it from there on.

Blocks before the cut hand their input on, the block at the cut is given the state that it would get, and its
attention, where nothing else happens in it, gives the projection of the heads as they were changed. The rest
runs as it is, through the library's own code, whatever a block does with its attention.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from spectrope.ablation.interventions import Variant
from spectrope.ablation.subject import Enough, Subject
from spectrope.ablation.tree import changes_in, fills_of
from spectrope.models.adapters import (
    after,
    before,
    first_of,
    in_parts,
    linear_weight,
    running,
    states_of,
    with_states,
)
from spectrope.tasks.sequences import Sequences


@dataclass(frozen=True)
class CheckpointStages:
    """A language model on some sequences; it puts out mean loss and accuracy of each.

    Args:
        subject: The model.
        data: The sequences, on its device.
        means: Mean output of each layer's heads, (heads * width,), if any fill needs them.
        donors: Heads of each layer on other sequences, with shape (b, t, heads * width), likewise.
    """

    subject: Subject
    data: Sequences
    means: Sequence[Tensor] | None = None
    donors: Sequence[Tensor] | None = None

    @property
    def n_layers(self) -> int:
        return len(self.subject.sites)

    def start(self) -> Tensor:
        return self.until(self.subject.sites[0].block)

    def fork(self, layer: int, x: Tensor, changes: Sequence[Variant]) -> "CheckpointFork":
        """Runs the layer's attention once."""
        heads: list[Tensor] = []
        name = self.subject.sites[layer].projection

        def note(_: str, args: Any, given: Any) -> None:
            heads.append(args[0])
            raise Enough

        with self.entered(layer, x), before(self.subject.model, [name], note), contextlib.suppress(Enough):
            self.subject.model(**self.subject.inputs(self.data, 1))
        return CheckpointFork(self, layer, x, heads[0])

    def read(self, x: Tensor) -> Tensor:
        *skipped, (last, parts) = self.subject.blocks
        with (
            self._passing(skipped),
            running(self.subject.model.get_submodule(last), lambda *_, **__: in_parts(x, parts)),
        ):
            return self.scores(1)[0]

    def until(self, block: str) -> Tensor:
        """What enters a block, at the end of a pass that stops there."""
        states: list[Tensor] = []

        def note(_: str, args: Any, given: Any) -> None:
            states.append(states_of(args, given))
            raise Enough

        with before(self.subject.model, [block], note), contextlib.suppress(Enough):
            self.subject.model(**self.subject.inputs(self.data, 1))
        return states[0]

    @contextlib.contextmanager
    def entered(self, layer: int, x: Tensor) -> Iterator[None]:
        """Blocks before a layer compute nothing, and its own block is given x, once per copy."""
        block = self.subject.sites[layer].block
        names = [name for name, _ in self.subject.blocks]

        def give(_: str, args: Any, given: Any) -> Any:
            copies = len(states_of(args, given)) // len(x)
            return with_states(args, given, x.repeat(copies, 1, 1))

        with (
            self._passing(self.subject.blocks[: names.index(block)]),
            before(self.subject.model, [block], give),
        ):
            yield

    @contextlib.contextmanager
    def _passing(self, blocks: Sequence[tuple[str, int]]) -> Iterator[None]:
        """Blocks that hand their input on."""
        with contextlib.ExitStack() as stack:
            for name, parts in blocks:
                stack.enter_context(running(self.subject.model.get_submodule(name), _handing_on(parts)))
            yield

    def scores(self, copies: int) -> Float[Tensor, "v b 2"]:
        """Mean loss and accuracy of every sequence in every copy, from a pass of the model.

        Only states at scored places are turned into token logits.
        """
        scored = self.data.scored
        rows = scored.repeat(copies, 1)

        def choose(_: str, args: Any, given: Any) -> Any:
            return (args[0][rows][None], *args[1:]), given

        with before(self.subject.model, [self.subject.predictor], choose):
            logits = self.subject.model(**self.subject.inputs(self.data, copies)).logits[0]
        hit, loss = _hit_and_loss(logits, self.data.targets[scored].repeat(copies))
        each = torch.stack([loss, hit], 1).unflatten(0, (copies, -1))
        owner = scored.nonzero()[:, 0]
        sums = each.new_zeros(copies, len(scored), 2).index_add(1, owner, each)
        return sums / scored.sum(1)[:, None]

    def filled(self, fill: str, layer: int, heads: Tensor) -> Tensor:
        """What takes the place of a layer's heads, side by side, in shape of theirs (b, t, f)."""
        if fill == "zero":
            return torch.zeros_like(heads)
        source = self.means if fill == "mean" else self.donors
        assert source is not None
        return source[layer].to(heads).expand_as(heads)

    def changed(self, heads: Tensor, layer: int, variants: Sequence[Variant]) -> Tensor:
        """Heads of copies (v * b, t, f) with each copy's own changes in this layer made."""
        changes = [changes_in(variant, layer) for variant in variants]
        width, copies = self.subject.sites[layer].width, heads.unflatten(0, (len(variants), -1)).clone()
        fills = {fill: self.filled(fill, layer, copies[0]) for fill in fills_of(changes)}
        for row, variant in enumerate(changes):
            for ablation in variant:
                own = slice(ablation.head * width, (ablation.head + 1) * width)
                copies[row, :, :, own] = fills[ablation.fill][..., own]
        return copies.flatten(0, 1)


@dataclass(frozen=True)
class CheckpointFork:
    """A layer whose attention has been run once.

    Args:
        stages: The model and the sequences.
        layer: Number of the layer.
        x: What enters its block, with shape (b, t, c).
        heads: Its heads side by side, nothing changed, with shape (b, t, f).
    """

    stages: CheckpointStages
    layer: int
    x: Tensor
    heads: Tensor

    def advance(self, changes: Variant) -> Tensor:
        subject, last = self.stages.subject, self.layer + 1 == self.stages.n_layers
        with self._cut([changes]):
            if not last:
                return self.stages.until(subject.sites[self.layer + 1].block)
            return self._behind(subject.blocks[-1][0])

    def finish(self, variants: Sequence[Variant]) -> Tensor:
        with self._cut(variants), self._later(variants):
            return self.stages.scores(len(variants))

    def _behind(self, block: str) -> Tensor:
        """What a block puts out, at the end of a pass that stops there."""
        states: list[Tensor] = []

        def note(_: str, output: Any) -> None:
            states.append(first_of(output))
            raise Enough

        subject = self.stages.subject
        with after(subject.model, [block], note), contextlib.suppress(Enough):
            subject.model(**subject.inputs(self.stages.data, 1))
        return states[0]

    @contextlib.contextmanager
    def _cut(self, variants: Sequence[Variant]) -> Iterator[None]:
        """The layer with each copy's own changes made; its attention is not run again where that can be."""
        subject, site = self.stages.subject, self.stages.subject.sites[self.layer]
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.stages.entered(self.layer, self.x))
            if site.gives == "more":
                heads = self.heads.repeat(len(variants), 1, 1)
                changed = self.stages.changed(heads, self.layer, variants)
                stack.enter_context(before(subject.model, [site.projection], lambda *_: ((changed,), {})))
            else:
                output = in_parts(self._attention(variants), site.parts)
                module = subject.model.get_submodule(site.module)
                stack.enter_context(running(module, lambda *_, **__: output))
            yield

    def _attention(self, variants: Sequence[Variant]) -> Float[Tensor, "vb t c"]:
        """What the layer's attention would put out for each copy."""
        site, projection = self.stages.subject.sites[self.layer], self.stages.subject.projection(self.layer)
        if site.gives == "heads":
            return self.stages.changed(self.heads.repeat(len(variants), 1, 1), self.layer, variants)
        weight = linear_weight(projection)
        assert weight is not None
        intact = projection(self.heads)
        return torch.cat([self._corrected(intact, weight, variant) for variant in variants])

    def _corrected(self, intact: Tensor, weight: Tensor, variant: Variant) -> Tensor:
        """The projection of changed heads, through their columns alone."""
        width = self.stages.subject.sites[self.layer].width
        for ablation in changes_in(variant, self.layer):
            own = slice(ablation.head * width, (ablation.head + 1) * width)
            fill = self.stages.filled(ablation.fill, self.layer, self.heads)[..., own]
            intact = intact + F.linear(fill - self.heads[..., own], weight[:, own])
        return intact

    @contextlib.contextmanager
    def _later(self, variants: Sequence[Variant]) -> Iterator[None]:
        """Changes in later layers, made as these run."""
        with contextlib.ExitStack() as stack:
            for layer in range(self.layer + 1, self.stages.n_layers):
                if any(changes_in(variant, layer) for variant in variants):
                    act = self._changing(layer, variants)
                    name = self.stages.subject.sites[layer].projection
                    stack.enter_context(before(self.stages.subject.model, [name], act))
            yield

    def _changing(self, layer: int, variants: Sequence[Variant]) -> Callable[[str, Any, Any], Any]:
        return lambda _, args, given: ((self.stages.changed(args[0], layer, variants), *args[1:]), given)


def _handing_on(parts: int) -> Callable[..., Any]:
    """A block's forward pass that puts out what enters it."""
    return lambda *args, **given: in_parts(states_of(args, given), parts)


def _hit_and_loss(logits: Float[Tensor, "n classes"], targets: Tensor) -> tuple[Tensor, Tensor]:
    """Whether the target is likeliest, and the cross-entropy in nats; `logits` are used up."""
    logits = logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits
    largest = logits.amax(1)
    wanted = logits.gather(1, targets[:, None])[:, 0]
    total = logits.sub_(largest[:, None]).exp_().sum(1).log() + largest
    return (wanted == largest).to(total), total - wanted
