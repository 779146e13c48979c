"""Audit indexers: the rotation of the queries and keys by which sparse attention chooses what it reads."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn

from spectrope.checkpoints.adapters import Call, layer_name
from spectrope.checkpoints.adapters.indexers import FORMS, Indexed, indexers, watched_indexers
from spectrope.checkpoints.audit.compare import compare
from spectrope.checkpoints.audit.declaration import declared_layer, layer_type
from spectrope.checkpoints.audit.declared_rope import declared_turning, rope_parameters
from spectrope.checkpoints.audit.encoding import LayerEncoding
from spectrope.checkpoints.audit.fields import Declaration
from spectrope.checkpoints.audit.heads import by_head
from spectrope.checkpoints.audit.layers import judge, layer_reach
from spectrope.checkpoints.audit.measure import measure
from spectrope.checkpoints.audit.nearest import named
from spectrope.checkpoints.audit.norms import freed_of_scaling
from spectrope.checkpoints.audit.records import LayerRecord
from spectrope.checkpoints.probes.constant_content import LayerKernel, constant_content


@dataclass(frozen=True, eq=False)
class IndexerAudit:
    """The indexers of one model.

    Args:
        model: Without its head.
        declaration: Its configuration.
        attending: Dotted names of its modules of softmax attention.
        length: Positions.
        noise: Relative rounding error of the model's arithmetic.
        contents: Number of random vectors.
        seed: Of the vectors.
    """

    model: nn.Module
    declaration: Declaration
    attending: list[str]
    length: int
    noise: float
    contents: int
    seed: int
    names: list[str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", indexers(self.model))

    def records(self) -> tuple[LayerRecord, ...]:
        """A record per indexer whose form is known and whose queries and keys are seen."""
        if not self.names or self.declaration.model_type not in FORMS:
            return ()
        kernels: list[LayerKernel] = []
        with watched_indexers(self.model, self.names, self.length) as seen:
            constant_content(
                self.model, self.attending, self.length, kernels.append, self.contents, self.seed
            )
        owners = {kernel.call.module: kernel for kernel in kernels}
        owned = ((name, owners.get(name.rpartition(".")[0])) for name in self.names if name in seen)
        return tuple(self._record(name, seen[name], owner) for name, owner in owned if owner is not None)

    def unread(self, read: Iterable[LayerRecord]) -> tuple[str, ...]:
        """The indexers that have no record, in words; nothing if there are none."""
        known = {one.module for one in read}
        left = [name for name in self.names if name not in known]
        return (f"indexers, which choose the keys of sparse attention ({', '.join(left)})",) if left else ()

    def _record(self, name: str, seen: Indexed, owner: LayerKernel) -> LayerRecord:
        _, layer = layer_name(name)
        declaration = self.declaration.at(layer)
        declared = self._declared(declaration, layer, seen.q.shape[-1])
        call = Call(name, seen.q, seen.k, bias=None, allowed=_causal(self.length), scale=1.0)
        kernel = self._freed(LayerKernel(call, owner.sources))
        measured = measure(kernel, declared, absolute=False, noise=self.noise)
        effective = replace(measured.encoding, scale=None)
        findings = compare(declared, effective, self.length, self.noise)
        findings = by_head(findings, measured.sides, declared.turning, self.length, self.noise)
        if declared.turning is not None:
            parameters = self._parameters(declaration, layer)
            findings = named(findings, declaration, parameters, effective.turning, self.length)
        verdict, reason = judge(declared, effective, findings, known=True)
        return LayerRecord(
            module=name,
            stack="indexer",
            layer=layer,
            position=measured.heads[0].position,
            effective=effective,
            declared=declared,
            verdict=verdict,
            findings=tuple(findings) if verdict == "differs" else (),
            reason=reason,
            scale=0.0,
            heads=measured.heads,
            reach=layer_reach(declared, effective, declaration, self.length, self.noise),
        )

    def _freed(self, kernel: LayerKernel) -> LayerKernel:
        """Without a learned factor that grows; queries with another are themselves among the sources."""
        learned = getattr(self.model.get_submodule(kernel.call.module), "softmax_scaling", None)
        grows = isinstance(learned, nn.Module) and bool(learned.get_parameter("scale").any())
        return freed_of_scaling(kernel, self.model, range(self.length)) if grows else kernel

    def _declared(self, declaration: Declaration, layer: int, head_dim: int) -> LayerEncoding:
        """The encoding of the layer's own attention, with coordinates laid out as the indexer has them."""
        own = declared_layer(declaration, "", layer, self.length)
        if own.turning is None:
            return LayerEncoding(own.kind, query_scale=own.query_scale)
        form, adjacent = FORMS[declaration.model_type], declaration.get("indexer_rope_interleave")
        turning = declared_turning(declaration, self._parameters(declaration, layer), self.length)
        start = head_dim - turning.width if form.turns_last else 0
        pairing = form.pairing if adjacent is None else "adjacent" if adjacent else "halves"
        turning = replace(turning, start=start, head_dim=head_dim, pairing=pairing, sense=1)
        return LayerEncoding(own.kind, turning=turning, query_scale=own.query_scale)

    @staticmethod
    def _parameters(declaration: Declaration, layer: int) -> dict[str, Any]:
        return rope_parameters(declaration, layer_type(declaration, layer))


def _causal(length: int) -> torch.Tensor:
    """What an indexer may choose from."""
    return torch.ones(1, 1, length, length, dtype=torch.bool).tril()
