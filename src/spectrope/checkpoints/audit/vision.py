"""Audit vision towers: what every layer rotates queries and keys of patches by, against the configuration."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from spectrope.checkpoints.adapters import FAILURES, Call, evaluating, layer_name
from spectrope.checkpoints.adapters.towers import Tower, towers
from spectrope.checkpoints.audit.compare import GAIN, Discrepancy
from spectrope.checkpoints.audit.declared_plane import DeclaredPlane, declared_plane
from spectrope.checkpoints.audit.encoding import describe_mask
from spectrope.checkpoints.audit.exercised import carried_out
from spectrope.checkpoints.audit.plane import PatchVectors, PlaneTurning, fit_plane
from spectrope.checkpoints.audit.plane_findings import HeadOfSide, agree, by_place, place_findings
from spectrope.checkpoints.audit.records import Position, VisionRecord
from spectrope.checkpoints.probes.patch_order import NO_PATCH, SEVERAL, patches_entering
from spectrope.checkpoints.probes.patches import PatchKernel, attending_in, constant_patches
from spectrope.core import SpectropeError, UnsupportedError
from spectrope.encodings import multiply_pairs

UNLIMITED = "unlimited"


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
        entering = patches_entering(self.tower, modules)
        first = entering[modules[0]]
        wanted = self.tower.numbers(layer_name(modules[0])[1])
        seen = int((first >= 0).sum()) == int((wanted >= 0).sum())
        clear = seen and not bool((first == SEVERAL).any())
        records: list[VisionRecord] = []

        def receive(kernel: PatchKernel) -> None:
            patches = entering[kernel.call.module] if clear else None
            records.append(self._record(kernel, "mixed" if varies else "relative", patches))

        constant_patches(self.tower, modules, receive, self.contents, self.seed)
        return records

    def _record(
        self, kernel: PatchKernel, position: Position, patches: Int[Tensor, " t"] | None
    ) -> VisionRecord:
        call, unexplained = carried_out(kernel.call, kernel.exercise)
        layer = layer_name(call.module)[1]
        declared = declared_plane(self.tower, layer, call.q.shape[-1])
        vectors = self._vectors(kernel, layer)
        around = [*self._around(call, kernel.windows, layer)]
        turned = self._rotation(vectors, declared)
        if not turned and not around:
            turned = [*self._order(patches, layer), *self._alike(kernel)]
        findings = [*turned, *around, *unexplained]
        return VisionRecord(
            module=f"{self.tower.name}.{call.module}".strip("."),
            tower=self.tower.name,
            layer=layer,
            grid=self.tower.grid,
            position=position,
            mask=self._mask(call, kernel.windows),
            effective=self._effective(vectors, declared),
            declared=declared.turning,
            verdict="differs" if findings else "matches",
            findings=tuple(findings),
            exercised=kernel.exercise is not None,
            ordered=patches is not None,
        )

    def _vectors(self, kernel: PatchKernel, layer: int) -> dict[HeadOfSide, PatchVectors]:
        """Queries and keys of each head, with the halves of each pair half a head apart or side by side."""
        form, places, tokens = self.tower.form, self.tower.places(layer), kernel.q.shape[2]
        windows = form.windows
        if tokens < len(places) or (windows is not None and windows.anew and tokens != len(places)):
            return {}  # Windows of another size, which the mask says.
        first = 0 if form.of_one_size else tokens - len(places)
        sides, sources = {"queries": kernel.q, "keys": kernel.k}, kernel.sources
        if form.class_angles:
            sides = {side: self._class_turned_back(x, first) for side, x in sides.items()}
        if form.by_halves:
            width = kernel.q.shape[-1]
            sides = {side: _halves_apart(x) for side, x in sides.items()}
            whole = (one.unflatten(1, (-1, width)) for one in sources if one.shape[1] % width == 0)
            sources = [_halves_apart(one).flatten(1) for one in whole]
        return {
            (side, head): PatchVectors(x[:, head], places, first, sources)
            for side, x in sides.items()
            for head in range(x.shape[1])
        }

    def _class_turned_back(self, x: Float[Tensor, "b h t d"], first: int) -> Float[Tensor, "b h t d"]:
        """Queries or keys of which those before the first patch are freed of their learned rotation."""
        form = self.tower.form
        angles = getattr(self.tower.module, form.class_angles).detach().float().cpu()
        back = torch.polar(torch.ones_like(angles), -angles)[None, None]
        return torch.cat(
            [multiply_pairs(x[:, :, :first].float(), back, form.pairing).to(x), x[:, :, first:]], 2
        )

    def _rotation(self, every: dict[HeadOfSide, PatchVectors], declared: DeclaredPlane) -> list[Discrepancy]:
        """Where rotations differ, of the layer, of one side or of single heads."""
        of = {place: place_findings(vectors, declared, self.noise) for place, vectors in every.items()}
        if not any(of.values()):
            return []
        first = next(iter(every.values()))
        together = replace(first, x=torch.cat([one.x for one in every.values()]))
        return by_place(of, place_findings(together, declared, self.noise))

    def _effective(
        self, every: dict[HeadOfSide, PatchVectors], declared: DeclaredPlane
    ) -> PlaneTurning | None:
        """The rotation of the first query head, with the declared base where it has that."""
        if not every:
            return None
        seen = fit_plane(next(iter(every.values())), declared.turning, self.noise)
        if seen is None or len(seen.rows) != len(declared.axes) or not agree(declared.turning, seen):
            return seen
        return replace(seen, base=declared.base)

    def _alike(self, kernel: PatchKernel) -> Iterator[Discrepancy]:
        """Where windows that count rows and columns anew get other queries or keys of the same content."""
        for x in (kernel.q, kernel.k):
            windows = x.unflatten(0, (self.contents, -1))
            if bool((windows - windows[:, :1]).abs().max() > 20 * self.noise * x.abs().max()):
                yield Discrepancy("attention factor", "1", "another in some windows")
                return

    def _order(self, patches: Int[Tensor, " t"] | None, layer: int) -> Iterator[Discrepancy]:
        """Where a token has the place of one patch, and is another."""
        if patches is None:
            return
        wanted = self.tower.numbers(layer)
        others = torch.full((max(0, len(patches) - len(wanted)),), NO_PATCH)
        last = self.tower.form.of_one_size
        wanted = torch.cat([wanted, others] if last else [others, wanted])
        if len(wanted) != len(patches) or torch.equal(wanted, patches):
            return
        token = int((wanted != patches).nonzero()[0])
        got = f"{self._named(int(patches[token]))} at the place of {self._named(int(wanted[token]))}"
        yield Discrepancy("positions", "row and column of each patch", got)

    def _named(self, number: int) -> str:
        """A patch by its number, in words."""
        if number < 0:
            return {NO_PATCH: "no patch", SEVERAL: "several patches"}[number]
        row, column = divmod(number, self.tower.grid[1])
        return f"the patch of row {row}, column {column}"

    def _around(self, call: Call, windows: tuple[int, ...], layer: int) -> Iterator[Discrepancy]:
        """What differs around the rotation: mask, factor on dot products, values."""
        wanted = self.tower.windows(layer)
        if self._words(wanted) != self._words(windows):
            yield Discrepancy("mask", self._words(wanted), self._words(windows))
        elif not bool(call.allowed.all()):
            yield Discrepancy("mask", "unlimited", describe_mask(call.allowed).description)
        scale = self.tower.form.scale or call.q.shape[-1] ** -0.5
        if call.scale is not None and abs(call.scale - scale) > max(GAIN, 10 * self.noise) * scale:
            residual = abs(call.scale / scale - 1)
            yield Discrepancy("attention scale", f"{scale:.5g}", f"{call.scale:.5g}", residual=residual)
        v = call.v
        if v is not None and bool((v - v[:1, :, :1]).abs().max() > 20 * self.noise * v.abs().max()):
            yield Discrepancy("values", "the same at every position", "varying with the position")

    def _mask(self, call: Call, windows: tuple[int, ...]) -> str:
        """Which patches a query sees, in words."""
        words = self._words(windows)
        return str(describe_mask(call.allowed)) if words == UNLIMITED else words

    def _words(self, sizes: Sequence[int]) -> str:
        """Windows of so many patches each; a whole picture may have other tokens, too."""
        windows, whole = self.tower.form.windows, math.prod(self.tower.grid)
        alone = windows is not None and windows.anew
        if len(sizes) == 1 and (sizes[0] == whole or (sizes[0] > whole and not alone)):
            return UNLIMITED
        return f"windows of {', '.join(map(str, sizes))} patches"


def _halves_apart(x: Float[Tensor, "*n d"]) -> Float[Tensor, "*n d"]:
    """Coordinates that pair within each half of a head, reordered so that pairs lie half a head apart."""
    return x.unflatten(-1, (2, 2, -1)).transpose(-3, -2).flatten(-3)
