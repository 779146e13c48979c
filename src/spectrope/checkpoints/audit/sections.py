"""Tokens of pictures under M-RoPE: which of time, height and width each pair of a layer turns with."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, groupby

import torch
from jaxtyping import Bool, Complex, Float, Int
from torch import Tensor

from spectrope.checkpoints.adapters import Call, layer_name
from spectrope.checkpoints.audit.compare import Discrepancy
from spectrope.checkpoints.audit.declaration import layer_type
from spectrope.checkpoints.audit.declared_rope import rope_parameters
from spectrope.checkpoints.audit.encoding import Turning
from spectrope.checkpoints.audit.far_layer import declared_at
from spectrope.checkpoints.audit.fields import Declaration
from spectrope.checkpoints.audit.layout import NORM_CHANGE, Layout, norm_change
from spectrope.checkpoints.audit.plane_findings import by_place
from spectrope.checkpoints.audit.records import LayerRecord
from spectrope.checkpoints.audit.starts import ORDERS
from spectrope.encodings.axial import mrope_axes

NAMES = ("time", "height", "width", "in another way")
OTHERWISE = 3  # Place of the last of these.
FARTHEST = 2**20  # Position up to which slow pairs are followed.
RUNS = 4  # Stretches of pairs up to which each is named.
LEAST = 8  # Positions within which places on and off the axes are found.
BY_LENGTH = frozenset({"dynamic", "longrope"})  # Kinds whose frequencies depend on the length of the input.
STEPS = (1, 2, 7, 61)  # Distances along each axis, beside those that depend on the declared length.

Axes = Int[Tensor, " m"]


def time_last(sections: tuple[int, int, int]) -> Axes:
    """Height and width take the first pairs in turn, time the last."""
    height, width, time = sections
    first = torch.tensor([1, 2]).repeat(height + width)[: height + width]
    return torch.cat([first, first.new_zeros(time)])


in_order, in_turn = partial(mrope_axes, interleaved=False), partial(mrope_axes, interleaved=True)


@dataclass(frozen=True)
class Division:
    """How an architecture divides the pairs.

    Args:
        axes: Gives the axis of each pair: 0 time, 1 height, 2 width.
        default: Sections where the configuration has none.
    """

    axes: Callable[[tuple[int, int, int]], Axes]
    default: tuple[int, int, int]


FORMS: dict[str, Division] = {
    **dict.fromkeys(
        ("qwen2_vl_text", "qwen2_5_vl_text", "qwen2_5_omni_text", "paddleocr_vl_text"),
        Division(in_order, (16, 24, 24)),
    ),
    **dict.fromkeys(
        ("glm4v_text", "glm4v_moe_text", "glm_image_text", "glm_ocr_text"), Division(in_order, (8, 12, 12))
    ),
    **dict.fromkeys(
        (
            "qwen3_vl_text",
            "qwen3_vl_moe_text",
            "qwen3_omni_moe_text",
            "cohere_compass_text",
            "cosmos3_edge_text",
        ),
        Division(in_turn, (24, 20, 20)),
    ),
    **dict.fromkeys(("qwen3_5_text", "qwen3_5_moe_text", "qwen4_exp_text"), Division(in_turn, (11, 11, 10))),
    "ernie4_5_vl_moe_text": Division(time_last, (22, 22, 20)),
}


def declared_axes(declaration: Declaration, record: LayerRecord) -> Axes | None:
    """The axis of each pair of a layer: 0 time, 1 height, 2 width; None if that is not known."""
    form, turning = FORMS.get(declaration.model_type), record.declared.turning
    if form is None or turning is None:
        return None
    _, layer = layer_name(record.module)
    given, pairs = rope_parameters(declaration, layer_type(declaration, layer)), turning.width // 2
    sections = given.get("mrope_section")
    if sections is None:
        return form.axes(form.default)[:pairs] if sum(form.default) >= pairs else None
    whole = isinstance(sections, list) and all(type(size) is int and size >= 0 for size in sections)
    if not whole or len(sections) != 3 or sum(sections) != pairs:
        return None
    time, height, width = sections
    return form.axes((time, height, width))


def reach_of_pictures(declaration: Declaration, records: Sequence[LayerRecord], trained: int) -> int:
    """Positions within which every pair turns far enough to tell its axis, if they change no frequency.

    Args:
        declaration: The configuration.
        records: Of the layers.
        trained: Positions that the configuration gives the model.
    """
    # Short of the trained length, below which a dynamic schedule forgets the length of an earlier pass.
    reach = max(trained - 1, LEAST)
    turning = [one.declared.turning for one in records if one.declared.turning is not None]
    kinds = {
        rope_parameters(declaration, layer_type(declaration, layer_name(one.module)[1])).get("rope_type")
        for one in records
    }
    slowest = min((speed for one in turning for speed in one.frequencies if speed > 0), default=1.0)
    return reach if kinds & BY_LENGTH else max(reach, min(math.ceil(1 / slowest), FARTHEST))


def has_sections(declaration: Declaration) -> bool:
    """Whether positions of pictures have several axes under this configuration."""
    parameters = declaration.get("rope_parameters", "rope_scaling") or {}
    parts = (parameters, *parameters.values())
    named = any("mrope_section" in one for one in parts if isinstance(one, dict))
    return named or declaration.model_type in FORMS


def chosen_places(reach: int) -> Int[Tensor, "3 t"]:
    """Time, height and width of some places below `reach`: the origin, those on each axis, and others."""
    steps = sorted({step for step in (*STEPS, reach // 2, reach - 1) if 0 < step < reach})
    along = [[step * (axis == own) for own in range(3)] for axis in range(3) for step in steps]
    off = [[steps[-1], 2, 1], [3, steps[-1], 5], [4, 1, steps[-1]]]
    return torch.tensor([[0, 0, 0], *along, *off]).T


@dataclass(frozen=True, eq=False)
class PictureLayer:
    """A layer at tokens of pictures.

    Args:
        axes: The declared axis of each pair.
        declaration: The configuration.
        record: Of the layer on text.
        call: Its call.
        places: Time, height and width of each token, the origin first.
        noise: Relative rounding error of the model's arithmetic.
    """

    axes: Axes
    declaration: Declaration
    record: LayerRecord
    call: Call
    places: Int[Tensor, "3 t"]
    noise: float

    def findings(self) -> list[Discrepancy]:
        """Where pairs turn with another axis than declared, of the layer, of one side or of single heads."""
        of = {
            (side, head): [*self._findings(x[:, head].double().cpu())]
            for side, x in (("queries", self.call.q), ("keys", self.call.k))
            for head in range(x.shape[1])
        }
        return by_place(of, [])

    def _findings(self, vectors: Float[Tensor, "n t d"]) -> Iterator[Discrepancy]:
        wanted, turning = self.axes, self.record.declared.turning
        assert turning is not None
        layouts = (Layout(pairing, turning.start, turning.width) for pairing in ORDERS)
        z = min((one.planes(vectors) for one in layouts), key=norm_change)
        if norm_change(z) > max(NORM_CHANGE, 8 * self.noise):
            yield Discrepancy("axes", in_words(wanted), "coordinates of a pair turn with different ones")
            return
        seen = self._seen(z)
        if not torch.equal(seen, wanted):
            wrong = (seen != wanted).nonzero().flatten().tolist()
            note = f"{len(wrong)} of {len(wanted)} pairs, the first of them pair {wrong[0]}"
            told, got = in_words(wanted), in_words(seen)
            if told == got:
                told, got = in_words(wanted, RUNS * len(wanted)), in_words(seen, RUNS * len(wanted))
            yield Discrepancy("axes", told, got, note)

    @property
    def untold(self) -> int:
        """Pairs that turn too slowly for this arithmetic to tell their axis at these places."""
        frequencies = torch.tensor(self._declared.frequencies, dtype=torch.float64)
        farthest = self.places.max().item() * frequencies
        return int((farthest <= 2 * self._bound(farthest)).sum())

    @property
    def _declared(self) -> Turning:
        declared = declared_at(self.declaration, self.record.module, int(self.places.max()) + 1).turning
        assert declared is not None
        return declared

    def _bound(self, angles: Float[Tensor, "*n m"]) -> Float[Tensor, "*n m"]:
        """Departure from angles that is left to rounding."""
        return 10 * self.noise + 8 * 2**-24 * angles.abs() + 1e-4

    def _seen(self, z: Complex[Tensor, "n t m"]) -> Axes:
        """The axis that each pair turns with: as declared, in another usual division, or pair by pair."""
        fits = self._fits(z)
        usual = (one for one in (self.axes, *_usual(self.axes)) if bool(fits.gather(0, one[None]).all()))
        best = torch.where(fits.any(0), fits.long().argmax(0), OTHERWISE)
        best = torch.where(fits.gather(0, self.axes[None])[0], self.axes, best)
        return next(usual, best)

    def _fits(self, z: Complex[Tensor, "n t m"]) -> Bool[Tensor, "3 m"]:
        """Whether each axis explains the phases of each pair."""
        measured = self.record.effective.turning
        frequencies = torch.tensor(self._declared.frequencies, dtype=torch.float64)
        frequencies = frequencies * ((measured and measured.sense) or 1)
        phases = (z * z[:, :1].conj()).sum(0).angle()
        angles = self.places.double()[..., None] * frequencies
        apart = torch.polar(torch.ones_like(angles), phases - angles).angle().abs()
        return (apart <= self._bound(angles)).all(1) | (z == 0).all(1).all(0)  # Pruned pairs say nothing.


def _usual(axes: Axes) -> Iterator[Axes]:
    """Divisions of as many pairs that mistakes lead to."""
    yield torch.zeros_like(axes)
    yield torch.tensor([0, 2, 1])[axes]
    time, height, width = torch.bincount(axes, minlength=3).tolist()
    yield in_order((time, height, width))
    yield in_turn((time, height, width))


def in_words(axes: Axes, most: int = RUNS) -> str:
    """Which pairs turn with which axis.

    Args:
        axes: Of each pair.
        most: Stretches of pairs up to which each is named.
    """
    names = [NAMES[axis] for axis in axes.tolist()]
    stretches = [(name, len([*same])) for name, same in groupby(names)]
    if len(stretches) > most:
        counts = ", ".join(_with(names.count(name), name) for name in dict.fromkeys(names))
        alone = all(n == 1 for _, n in stretches[:-1])  # The last stretch is what one axis has left.
        return f"{counts}, in turn" if alone else f"{counts}, mixed"
    ends = accumulate(n for _, n in stretches)
    words = (
        _with(f"{end - n} to {end - 1}" if n > 1 else end - 1, name)
        for (name, n), end in zip(stretches, ends, strict=True)
    )
    return f"pairs {', '.join(words)}"


def _with(pairs: int | str, name: str) -> str:
    return f"{pairs} {name}" if name == NAMES[OTHERWISE] else f"{pairs} with {name}"
