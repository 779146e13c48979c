"""The law check accuses no correct code, and is misled by no mask, table or distance."""

import math

import pytest
import torch
from torch import Tensor

from spectrope.core.errors import ConfigError
from spectrope.encodings.base import ENCODINGS, Context, Encoding, Form, LagBias, Tag
from spectrope.encodings.laws import LawCheck, Sizes, check_laws, relative_error

ROTATES = frozenset({Tag.SHIFT_INVARIANT, Tag.CONTENT_FREE, Tag.ISOMETRIC})
PLAIN = frozenset({Tag.SHIFT_INVARIANT, Tag.CONTENT_FREE})


def turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


class CachedTables(Encoding):
    """RoPE from tables of cosines and sines in float32, as many models keep them."""

    tags = ROTATES

    def setup(self, config) -> None:
        angles = torch.outer(torch.arange(131_072).float(), 1 / 10_000 ** (torch.arange(0, 8, 2).float() / 8))
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def rotate(self, x: Tensor, pos: Tensor, side: str) -> Tensor:
        return turned(x, self.cos[pos][:, None].to(x.dtype), self.sin[pos][:, None].to(x.dtype))


class Phases(Encoding):
    """RoPE from a table of complex64 phases, by which vectors in float32 are multiplied."""

    tags = ROTATES

    def setup(self, config) -> None:
        angles = torch.outer(torch.arange(131_072).float(), 1 / 10_000 ** (torch.arange(0, 8, 2).float() / 8))
        self.register_buffer("phases", torch.polar(torch.ones_like(angles), angles), persistent=False)

    def rotate(self, x: Tensor, pos: Tensor, side: str) -> Tensor:
        z = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)).contiguous())
        return torch.view_as_real(z * self.phases[pos][:, None]).flatten(-2).type_as(x)


class Rates(Encoding):
    """RoPE with frequencies in a plain attribute."""

    tags = ROTATES

    def setup(self, config) -> None:
        self.rates = 1 / 10_000 ** (torch.arange(0, 8, 2) / 8)

    def rotate(self, x: Tensor, pos: Tensor, side: str) -> Tensor:
        angles = (pos[..., None] * self.rates)[:, None]
        return turned(x, angles.cos(), angles.sin())


class ShortTable(Rates):
    """The same for 4,096 positions alone."""

    def rotate(self, x: Tensor, pos: Tensor, side: str) -> Tensor:
        return super().rotate(x, torch.arange(4096)[pos], side)


class Window(LagBias):
    """Four keys are seen, and no other."""

    tags = PLAIN

    def lag_bias(self, lag: Tensor) -> Tensor:
        return (-lag.double()).masked_fill(lag > 3, -math.inf)[..., None].expand(*lag.shape, 4)


class Logarithm(LagBias):
    """A logarithm whose rate must be positive."""

    tags = PLAIN | {Tag.LEARNED}

    def setup(self, config) -> None:
        self.rate = torch.nn.Parameter(torch.full((4,), 0.02))

    def lag_bias(self, lag: Tensor) -> Tensor:
        return -torch.log1p(self.rate.log().exp() * lag.abs()[..., None])


class HiddenPlace(Encoding):
    """Depends on the place of the key, beside the mask of a window."""

    form = Form.DOT_PLUS_BIAS
    tags = PLAIN

    def bias(self, ctx: Context) -> Tensor:
        seen = 3 * torch.sin(0.7 * ctx.k_pos.double())[:, None, None].expand(-1, 1, ctx.q.shape[2], -1)
        return torch.where(ctx.lag[:, None] > 3, -1e9, seen)


class HiddenContent(Encoding):
    """Depends on the keys, beside the mask of a window."""

    form = Form.DOT_PLUS_BIAS
    tags = PLAIN

    def bias(self, ctx: Context) -> Tensor:
        least = torch.finfo(ctx.q.dtype).min
        return torch.where(ctx.lag[:, None] > 3, least, ctx.k.sum(-1)[:, :, None].square())


class Cooled(Encoding):
    """Scales queries by a logarithm behind a length of 2,048."""

    tags = frozenset({Tag.CONTENT_FREE, Tag.ISOMETRIC})

    def rotate(self, x: Tensor, pos: Tensor, side: str) -> Tensor:
        factor = (pos.double().clamp(min=2048) / 2048).log() + 1
        return x * factor[:, None, :, None] if side == "query" else x


class LaterKeys(Encoding):
    """Depends on the place of keys behind the query."""

    form = Form.DOT_PLUS_BIAS
    tags = PLAIN

    def bias(self, ctx: Context) -> Tensor:
        return torch.where(ctx.lag < 0, torch.sin(ctx.k_pos.double())[:, None], 0.0)[:, None]


class LongLags(Encoding):
    """Depends on the place of keys 17 tokens away or more."""

    form = Form.DOT_PLUS_BIAS
    tags = PLAIN

    def bias(self, ctx: Context) -> Tensor:
        return torch.where(ctx.lag > 16, torch.sin(ctx.k_pos.double())[:, None], 0.0)[:, None]


class Values(Encoding):
    """Scales what a query reads by its place."""

    form = Form.GENERAL
    tags = PLAIN

    def read(self, pattern: Tensor, v: Tensor, ctx: Context) -> Tensor:
        return (pattern @ v) * (1 + torch.sin(ctx.q_pos.double())[:, None, :, None])


class Grid(Encoding):
    """Turns by an angle that is linear in neither of two coordinates, but constant where they are equal."""

    tags = ROTATES
    axes = 2

    def rotate(self, x: Tensor, pos: Tensor, side: str) -> Tensor:
        row, column = pos[..., -2].double(), pos[..., -1].double()
        angles = ((row - column) ** 2)[:, None, :, None].expand(-1, 1, -1, 4)
        return turned(x, angles.cos(), angles.sin())


class TwoBiases(LagBias):
    """Adds another bias than it tells."""

    tags = PLAIN

    def lag_bias(self, lag: Tensor) -> Tensor:
        return 5.0 * lag[..., None].expand(*lag.shape, 4)

    def bias(self, ctx: Context) -> Tensor:
        return -ctx.lag[:, None].double()


def checked(cls: type[Encoding], sizes: Sizes | None = None) -> dict[Tag, LawCheck]:
    built = cls(ENCODINGS.config("nope")())
    return {check.law: check for check in check_laws(built, sizes)}


@pytest.mark.parametrize("cls", [CachedTables, Phases, Rates, ShortTable, Window, Logarithm])
def test_correct_code_is_not_accused(cls):
    checks = checked(cls)
    assert [check for check in checks.values() if not check.honest] == []


@pytest.mark.parametrize("cls", [CachedTables, Phases, Rates])
def test_tables_in_float32_are_named_as_rounding(cls):
    shift = checked(cls)[Tag.SHIFT_INVARIANT]
    assert shift.rounds
    assert shift.note == "float32 rounding alone; it is exact where everything is computed in float64"


@pytest.mark.parametrize(
    ("cls", "law"),
    [
        (HiddenPlace, Tag.SHIFT_INVARIANT),
        (HiddenContent, Tag.CONTENT_FREE),
        (Cooled, Tag.ISOMETRIC),
        (LongLags, Tag.SHIFT_INVARIANT),
        (Values, Tag.SHIFT_INVARIANT),
        (Grid, Tag.SHIFT_INVARIANT),
    ],
)
def test_a_violation_is_found_behind_masks_far_away_and_in_values(cls, law):
    assert not checked(cls)[law].honest


def test_keys_behind_the_query_count_where_they_are_seen():
    assert checked(LaterKeys)[Tag.SHIFT_INVARIANT].honest
    assert not checked(LaterKeys, Sizes(causal=False))[Tag.SHIFT_INVARIANT].honest


def test_two_biases_are_refused():
    with pytest.raises(ConfigError, match=r"TwoBiases.bias adds another bias than its lag_bias"):
        checked(TwoBiases)


def test_two_biases_of_later_keys_are_refused_where_they_are_seen():
    class TwoFutures(LagBias):
        tags = PLAIN

        def lag_bias(self, lag: Tensor) -> Tensor:
            return -lag.abs()[..., None].double().expand(*lag.shape, 4)

        def bias(self, ctx: Context) -> Tensor:
            return -ctx.lag[:, None].double().clamp(min=0).expand(-1, 4, -1, -1)

    assert all(one.honest for one in checked(TwoFutures).values())
    with pytest.raises(ConfigError, match=r"TwoFutures.bias adds another bias than its lag_bias"):
        checked(TwoFutures, Sizes(causal=False))


def test_no_number_is_said_to_be_one():
    class NoNumbers(LagBias):
        tags = PLAIN

        def lag_bias(self, lag: Tensor) -> Tensor:
            return torch.full((*lag.shape, 4), math.nan)

    shift = checked(NoNumbers)[Tag.SHIFT_INVARIANT]
    assert not shift.is_known
    assert not shift.holds
    assert shift.note == "cannot tell: what is compared contains NaN"


def test_what_no_query_sees_may_be_no_number():
    class PastAlone(LagBias):
        tags = PLAIN

        def lag_bias(self, lag: Tensor) -> Tensor:
            return -torch.log1p(lag.float())[..., None].expand(*lag.shape, 4)

    assert all(one.honest for one in checked(PastAlone).values())
    assert not checked(PastAlone, Sizes(causal=False))[Tag.CONTENT_FREE].is_known


def test_a_bias_may_be_smaller_than_the_logits():
    class Constant(Encoding):
        form = Form.DOT_PLUS_BIAS
        tags = frozenset({Tag.CONTENT_FREE, Tag.SHIFT_INVARIANT})

        def bias(self, ctx: Context) -> Tensor:
            return torch.tensor(0.5)

    assert checked(Constant)[Tag.CONTENT_FREE].honest


def test_errors_are_relative_to_values_of_their_kind():
    a = torch.tensor([1.0, 2.0, -1e9, -math.inf])
    assert relative_error(a, a) == 0
    assert relative_error(a, a + torch.tensor([0.0, 0.5, 0.0, 0.0])) == pytest.approx(0.2)
    assert relative_error(a, torch.tensor([1.0, 2.0, -2e9, -math.inf])) == pytest.approx(0.5)
    assert relative_error(a, torch.tensor([1.0, 2.0, -1e9, 0.0])) == math.inf
    assert math.isnan(relative_error(a, torch.tensor([1.0, math.nan, -1e9, -math.inf])))
    assert relative_error(torch.zeros(2), torch.zeros(2)) == 0
