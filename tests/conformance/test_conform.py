"""Implementations of rotary embeddings against the oracle."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from spectrope.conformance import RotaryCell, cells, conform
from spectrope.conformance.cells import BASE, SCALINGS, STARTS
from spectrope.conformance.implementation import RotaryFunction, load
from spectrope.conformance.oracle import rotated, schedule_of
from spectrope.conformance.suite import EXAMPLES, own_layout
from spectrope.core import ConfigError

GOOD = """
import torch

def apply_rope(x, positions, base=10000.0):
    f = base ** (-torch.arange(0, x.shape[-1], 2).double() / x.shape[-1])
    a = positions[:, None] * f
    c, s = (torch.cat([y, y], -1) for y in (a.cos(), a.sin()))
    x1, x2 = x.double().chunk(2, -1)
    return (x * c + torch.cat([-x2, x1], -1) * s).to(x.dtype)

def in_its_type(x, positions):
    f = (10000.0 ** (-torch.arange(0, x.shape[-1], 2).double() / x.shape[-1])).to(x.dtype)
    a = positions[:, None].to(x.dtype) * f
    c, s = (torch.cat([y, y], -1) for y in (a.cos(), a.sin()))
    x1, x2 = x.chunk(2, -1)
    return x * c + torch.cat([-x2, x1], -1) * s

def of_one(x):
    return x

def short(x, positions):
    return x[..., :2]
"""
SOME = [
    cell for cell in cells() if cell.scaling == "none" and cell.width == 1 and cell.sections == "one axis"
]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(GOOD, encoding="utf-8")
    return path


def everything(x: Tensor, positions: Tensor, **asked: Any) -> Tensor:
    """The oracle's own formula by complex numbers, with all that can be asked for."""
    width, parts = asked.get("width", x.shape[-1]), asked.get("sections")
    kind = (asked.get("scaling") or {}).get("rope_type", "none")
    frequencies = schedule_of(kind, asked.get("base", BASE)).frequencies(width)
    axes = positions[None] if parts is None else positions
    of_pair = torch.cat([torch.full((n,), i) for i, n in enumerate(parts or [width // 2])])
    turn = torch.polar(torch.ones(()).double(), axes[of_pair].T * frequencies) * schedule_of(kind).gain
    part, rest = x.double()[..., :width], x[..., width:]
    if asked["layout"] == "interleaved":
        out = torch.view_as_real(
            torch.view_as_complex(part.unflatten(-1, (-1, 2)).contiguous()) * turn
        ).flatten(-2)
    else:
        z = torch.complex(*part.chunk(2, -1)) * turn
        out = torch.cat([z.real, z.imag], -1)
    return torch.cat([out.to(x.dtype), rest], -1)


def test_a_right_implementation_of_everything_passes_all_cells():
    found = conform(everything, only=list(cells())[::7])
    assert found.ok
    assert {one.verdict for one in found.results} == {"exact"}
    assert found.examples == ()


def test_the_suite_covers_every_combination():
    everywhere = list(cells())
    assert len(everywhere) == len(set(everywhere)) == 3 * 4 * 2 * 2 * 3 * 4 * 2
    assert max(int(cell.positions().max()) for cell in everywhere) == pytest.approx(1_000_000, abs=50)


@pytest.mark.parametrize("kind", SCALINGS)
def test_the_oracle_agrees_with_transformers(kind: str):
    cell = RotaryCell(scaling=kind)
    parameters = {"rope_type": "default", "rope_theta": 10000.0} | SCALINGS[kind]
    config = LlamaConfig(
        hidden_size=64, num_attention_heads=1, max_position_embeddings=16384, rope_parameters=parameters
    )
    x, positions = cell.vectors("x"), cell.positions()
    cos, sin = LlamaRotaryEmbedding(config)(x, positions[None])
    half = torch.cat([-x[..., 32:], x[..., :32]], -1)
    assert torch.allclose((x * cos + half * sin).double(), rotated(cell, x, positions), atol=1e-5)


def test_a_layout_that_cannot_be_asked_for_is_found(file: Path):
    found = conform(load(f"{file}:apply_rope").apply, only=SOME)
    assert found.ok
    verdicts = {
        layout: {r.verdict for r in found.results if r.cell.layout == layout}
        for layout in ("halves", "interleaved")
    }
    assert verdicts == {"halves": {"exact"}, "interleaved": {"not offered"}}


def test_angles_in_low_precision_are_wrong_with_an_example_that_runs(file: Path):
    apply = load(f"{file}:in_its_type").apply
    found = conform(apply, only=SOME)
    assert not found.ok
    wrong = [one for one in found.results if one.verdict == "wrong"]
    assert {one.cell.dtype for one in wrong} == {"bfloat16", "float16"}
    assert {one.direction for one in wrong} == {"forward", "backward"}
    example = found.examples[0]
    space: dict[str, Any] = {"torch": torch, "apply_rope": apply}
    exec(example.code, space)
    place = int(example.said.partition("0, 0, 0, ")[2].partition("]")[0])
    said = float(example.said.rpartition(" ")[2])
    assert float(space["y"].detach()[0, 0, 0, place]) == pytest.approx(said, rel=1e-3)


Function = Callable[..., Any]


def raises(x: Tensor, positions: Tensor) -> Tensor:
    if positions.max() > 5000:
        raise IndexError("table too short")
    return everything(x, positions, layout="halves")


def in_place(x: Tensor, positions: Tensor) -> Tensor:
    out = everything(x, positions, layout="halves")
    with torch.no_grad():
        x.mul_(0.5)
    return out


def refuses(x: Tensor, positions: Tensor) -> Tensor:
    if positions.max() > 5000:
        raise NotImplementedError("long")
    return everything(x, positions, layout="halves").detach()


def leaves(x: Tensor, positions: Tensor) -> Tensor:
    if positions.max() > 5000:
        raise SystemExit(0)
    return everything(x, positions, layout="halves")


def complex_numbers(x: Tensor, positions: Tensor) -> Tensor:
    y = everything(x, positions, layout="halves")
    return y.to(torch.complex64) if positions.max() > 5000 else y


def moves_positions(x: Tensor, positions: Tensor) -> Tensor:
    if positions.max() > 5000:
        positions += 1
    return everything(x, positions, layout="halves")


def offers_nothing(x: Tensor, positions: Tensor, layout: str = "halves") -> Tensor:
    raise NotImplementedError("not yet")


def test_a_function_that_offers_nothing_is_not_right():
    with pytest.raises(ConfigError, match="offers_nothing offers none of the cases: not yet"):
        conform(offers_nothing, only=[RotaryCell()])


def test_the_layout_of_a_rotation_in_the_wrong_sense_is_found():
    def backwards(x: Tensor, positions: Tensor) -> Tensor:
        return everything(x, -positions, layout="halves")

    found = conform(backwards, only=[RotaryCell(layout=layout) for layout in ("halves", "interleaved")])
    verdicts = {one.cell.layout: one.verdict for one in found.results if one.direction == "forward"}
    assert verdicts == {"halves": "wrong", "interleaved": "not offered"}


def test_what_was_not_looked_at_is_counted():
    found = conform(refuses, only=[RotaryCell()])
    assert "Not offered, and therefore not tested: 1 of 2 cases." in str(list(found.parts()))


@pytest.mark.parametrize(
    ("function", "start", "verdict", "note"),
    [
        (raises, 131_072, "fails", "IndexError: table too short"),
        (in_place, 0, "wrong", "changes its input"),
        (refuses, 131_072, "not offered", "long"),
        (leaves, 131_072, "fails", "SystemExit: 0"),
        (complex_numbers, 131_072, "fails", "no floating-point tensor"),
        (moves_positions, 131_072, "wrong", "changes the positions"),
    ],
)
def test_other_ways_to_fail(function: Function, start: int, verdict: str, note: str):
    found = conform(function, only=[RotaryCell(), RotaryCell(start=start)])
    assert (found.results[2].verdict, found.results[2].note) == (verdict, note)


def test_what_torch_cannot_differentiate_is_not_offered_backwards():
    found = conform(refuses, only=[RotaryCell()])
    assert [(one.direction, one.verdict) for one in found.results] == [
        ("forward", "exact"),
        ("backward", "not offered"),
    ]


CACHE: dict[int, Tensor] = {}


def ignores_base(x: Tensor, positions: Tensor, base: float = BASE) -> Tensor:
    return everything(x, positions, layout="halves")


def keeps_a_table(x: Tensor, positions: Tensor, base: float = BASE) -> Tensor:
    if x.shape[-1] not in CACHE:
        CACHE[x.shape[-1]] = schedule_of("none", base).frequencies(x.shape[-1])
    return turned_by(x, positions[:, None] * CACHE[x.shape[-1]])


def turned_by(x: Tensor, angles: Tensor) -> Tensor:
    a, b = x.double().chunk(2, -1)
    both = [a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()]
    return torch.cat(both, -1).to(x.dtype)


def first_of_batch(x: Tensor, positions: Tensor) -> Tensor:
    return everything(x[:1], positions, layout="halves").expand_as(x)


def even_lengths(x: Tensor, positions: Tensor) -> Tensor:
    return everything(x, positions, layout="halves") if len(positions) % 2 == 0 else x + 0


def no_single_token(x: Tensor, positions: Tensor) -> Tensor:
    if len(positions) == 1:
        raise ValueError("too few tokens")
    return everything(x, positions, layout="halves")


@pytest.mark.parametrize(
    ("function", "beyond"),
    [
        (ignores_base, r"base=500000.0: wrong, by "),
        (keeps_a_table, r"base=500000.0: wrong, by "),
        (first_of_batch, r"two sequences in a batch: wrong, by "),
        (even_lengths, r"11 tokens: wrong, by "),
        (no_single_token, r"1 token: fails with ValueError: too few tokens"),
    ],
)
def test_what_no_option_varies_is_looked_at(function: Function, beyond: str):
    found = conform(function, only=[RotaryCell()])
    assert all(one.verdict == "exact" for one in found.results)
    assert not found.ok
    assert found.beyond[0].startswith(beyond)
    assert found.beyond[0] in list(found.parts())
    assert found.to_dict()["beyond"] == list(found.beyond)


def test_a_call_that_is_not_offered_is_told():
    def one_sequence(x: Tensor, positions: Tensor, base: float = BASE) -> Tensor:
        if len(x) > 1:
            raise NotImplementedError("a batch")
        return everything(x, positions, layout="halves", base=base)

    found = conform(one_sequence, only=[RotaryCell()])
    assert found.ok
    assert found.to_dict()["absent"] == ["two sequences in a batch"]
    told = "Not offered beside these cases, and therefore not tested: two sequences in a batch."
    assert told in list(found.parts())


def test_another_type_is_told():
    def widens(x: Tensor, positions: Tensor) -> Tensor:
        return everything(x.double(), positions, layout="halves")

    found = conform(widens, only=[RotaryCell(dtype="bfloat16")])
    assert "In 1 of 2 cases it returns float64." in list(found.parts())


def test_a_function_that_writes_into_its_vectors_has_its_own_layout():
    def writes(x: Tensor, positions: Tensor) -> Tensor:
        with torch.no_grad():
            return x.copy_(everything(x, positions, layout="halves"))

    assert own_layout(RotaryFunction.of("writes", writes)) == "halves"


def test_a_result_elsewhere_fails_in_a_line():
    def elsewhere(x: Tensor, positions: Tensor, layout: str) -> Tensor:
        return x.to("meta")

    found = conform(elsewhere, only=[RotaryCell()])
    assert {(one.verdict, one.note) for one in found.results} == {("fails", "a tensor on meta")}
    with pytest.raises(ConfigError, match="must return a tensor on cpu, as its vectors; got meta"):
        conform(lambda x, positions: x.to("meta"), only=[RotaryCell()])


def test_an_example_names_the_base_that_was_asked_for():
    def faulty(x: Tensor, positions: Tensor, base: float = 500_000.0) -> Tensor:
        y = everything(x, positions, layout="halves", base=base)
        return torch.cat([y[..., :5], -y[..., 5:6], y[..., 6:]], -1)

    example = conform(faulty, only=[RotaryCell()]).examples[0]
    assert "base=10000.0" in example.code
    space: dict[str, Any] = {"torch": torch, "apply_rope": faulty}
    exec(example.code, space)
    place = int(example.said.partition("0, 0, 0, ")[2].partition("]")[0])
    assert float(space["y"].detach()[0, 0, 0, place]) == pytest.approx(
        float(example.said.rpartition(" ")[2]), rel=1e-3
    )


def test_the_largest_error_and_the_examples_that_are_not_printed_are_told():
    def off(x: Tensor, positions: Tensor, layout: str) -> Tensor:
        y = everything(x, positions, layout=layout)
        return y + (0.1 * (positions > 500_000)).to(x)[:, None] * x.detach().abs().amax(-1, keepdim=True)

    start = max(STARTS)
    told = " ".join(str(part) for part in conform(off, only=[RotaryCell(start=start)]).parts())
    assert "The largest error is 0.1 of the largest coordinate (float32, positions from 999,953)" in told
    assert "here up to 0.24." in told

    def nothing(x: Tensor, positions: Tensor, layout: str, width: int = 64, scaling: Any = None) -> Tensor:
        return x + 0

    found = conform(nothing, only=[cell for cell in cells() if cell.sections == "one axis"])
    assert f"{len(found.examples) - EXAMPLES} more examples are in the JSON." in list(found.parts())


def test_a_base_that_cannot_be_asked_for_is_told():
    def plain(x: Tensor, positions: Tensor) -> Tensor:
        return everything(x, positions, layout="halves")

    assert conform(plain, only=[RotaryCell()]).absent == ("base=500000.0",)
