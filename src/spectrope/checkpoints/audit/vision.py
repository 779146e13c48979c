"""Audit vision towers: what every layer rotates queries and keys of patches by, against the configuration."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import nn

from spectrope.checkpoints.adapters import FAILURES, Call, evaluating, layer_name
from spectrope.checkpoints.adapters.towers import Tower, towers
from spectrope.checkpoints.audit.compare import GAIN, Discrepancy
from spectrope.checkpoints.audit.declared_plane import DeclaredPlane, declared_plane
from spectrope.checkpoints.audit.encoding import describe_mask
from spectrope.checkpoints.audit.exercised import carried_out
from spectrope.checkpoints.audit.plane import PatchVectors, PlaneTurning, fit_plane
from spectrope.checkpoints.audit.plane_findings import HeadOfSide, agree, by_place, place_findings
from spectrope.checkpoints.audit.records import Position, VisionRecord
from spectrope.checkpoints.probes.patches import PatchKernel, attending_in, constant_patches
from spectrope.core import SpectropeError, UnsupportedError


def vision_records(model: nn.Module, contents: int = 2, seed: int = 0) -> tuple[VisionRecord, ...]:
    """A record per attention layer of each vision tower of a model whose rotation is known.

    Args:
        model: A Hugging Face model.
        contents: Number of random vectors.
        seed: Of the vectors.

    Raises:
        UnsupportedError: If a tower does not run, or cannot be measured.
    """
    with evaluating(model):
        return tuple(one for tower in towers(model) for one in _records(tower, contents, seed))


def _records(tower: Tower, contents: int, seed: int) -> list[VisionRecord]:
    try:
        return TowerAudit(tower, contents, seed).records()
    except SpectropeError:
        raise
    except FAILURES as error:
        name = type(tower.module).__name__
        raise UnsupportedError(
            f"{name} cannot be measured on a picture of {tower.grid[0]} × {tower.grid[1]} patches: {error}"
        ) from error


@dataclass(frozen=True, eq=False)
class TowerAudit:
    """One vision tower.

    Args:
        tower: The tower.
        contents: Number of random vectors.
        seed: Of the vectors.
    """

    tower: Tower
    contents: int
    seed: int

    @property
    def noise(self) -> float:
        """Relative rounding error of the tower's arithmetic."""
        return float(torch.finfo(next(self.tower.module.parameters()).dtype).eps)

    def records(self) -> list[VisionRecord]:
        """A record per attention layer."""
        modules, varies = attending_in(self.tower)
        records: list[VisionRecord] = []

        def receive(kernel: PatchKernel) -> None:
            records.append(self._record(kernel, "mixed" if varies else "relative"))

        constant_patches(self.tower, modules, receive, self.contents, self.seed)
        return records

    def _record(self, kernel: PatchKernel, position: Position) -> VisionRecord:
        call, unexplained = carried_out(kernel.call, kernel.exercise)
        declared = declared_plane(self.tower, call.q.shape[-1])
        layer = layer_name(call.module)[1]
        findings = [*self._rotation(kernel, declared), *self._around(call, kernel.windows, layer)]
        findings += unexplained
        return VisionRecord(
            module=f"{self.tower.name}.{call.module}".strip("."),
            tower=self.tower.name,
            layer=layer,
            grid=self.tower.grid,
            position=position,
            mask=_mask(call, kernel.windows),
            effective=self._effective(kernel, declared),
            declared=declared.turning,
            verdict="differs" if findings else "matches",
            findings=tuple(findings),
            exercised=kernel.exercise is not None,
        )

    def _vectors(self, kernel: PatchKernel) -> dict[HeadOfSide, PatchVectors]:
        """Queries and keys of each head."""
        places = self.tower.places()
        first = 0 if self.tower.form.of_one_size else kernel.q.shape[2] - len(places)
        sides = {"queries": kernel.q, "keys": kernel.k}
        return {
            (side, head): PatchVectors(x[:, head], places, first, kernel.sources)
            for side, x in sides.items()
            for head in range(x.shape[1])
        }

    def _rotation(self, kernel: PatchKernel, declared: DeclaredPlane) -> list[Discrepancy]:
        """Where rotations differ, of the layer, of one side or of single heads."""
        every = self._vectors(kernel)
        of = {place: place_findings(vectors, declared, self.noise) for place, vectors in every.items()}
        if not any(of.values()):
            return []
        first = next(iter(every.values()))
        together = replace(first, x=torch.cat([one.x for one in every.values()]))
        return by_place(of, place_findings(together, declared, self.noise))

    def _effective(self, kernel: PatchKernel, declared: DeclaredPlane) -> PlaneTurning | None:
        """The rotation of the first query head, with the declared base where it has that."""
        seen = fit_plane(next(iter(self._vectors(kernel).values())), declared.turning, self.noise)
        if seen is None or len(seen.rows) != len(declared.axes) or not agree(declared.turning, seen):
            return seen
        return replace(seen, base=declared.base)

    def _around(self, call: Call, windows: tuple[int, ...], layer: int) -> Iterator[Discrepancy]:
        """What differs around the rotation: mask, factor on dot products, values."""
        wanted = self.tower.windows(layer)
        if list(windows) != wanted and sum(windows) == sum(wanted):
            yield Discrepancy("mask", _windows(wanted), _windows(windows))
        elif not bool(call.allowed.all()):
            yield Discrepancy("mask", "unlimited", describe_mask(call.allowed).description)
        scale = call.q.shape[-1] ** -0.5
        if call.scale is not None and abs(call.scale - scale) > max(GAIN, 10 * self.noise) * scale:
            residual = abs(call.scale / scale - 1)
            yield Discrepancy("attention scale", f"{scale:.5g}", f"{call.scale:.5g}", residual=residual)
        v = call.v
        if v is not None and bool((v - v[:, :, :1]).abs().max() > 20 * self.noise * v.abs().max()):
            yield Discrepancy("values", "the same at every position", "varying with the position")


def _mask(call: Call, windows: tuple[int, ...]) -> str:
    return _windows(windows) if len(windows) > 1 else str(describe_mask(call.allowed))


def _windows(sizes: "tuple[int, ...] | list[int]") -> str:
    if len(sizes) == 1:
        return "unlimited"
    return f"windows of {', '.join(map(str, sizes))} patches"
