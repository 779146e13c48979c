"""The laws that every registered encoding must keep, and faults that the battery must catch."""

import copy
import dataclasses

import pytest
import torch
from tests.encodings.cases import (
    CASES,
    CONFIGS,
    SIZES,
    built,
    fingerprint,
    fitted,
    perturbed,
    same,
    spreads,
    trial,
)
from torch import Tensor
from torch.testing import assert_close

from spectrope.core.config import OneOf, config_hash, to_dict
from spectrope.core.errors import ConfigError
from spectrope.encodings.base import ENCODINGS, Context, Encoding, Form, Tag, describe
from spectrope.encodings.laws import LawTrial, Sizes, check_laws

CAUSAL_ALONE = {"path"}  # encodings that say nothing of the future


def head(ctx: Context, n: int) -> Context:
    """The first n tokens."""
    return Context(
        ctx.q[:, :, :n], ctx.k[:, :, :n], ctx.q_pos[:, :n], ctx.k_pos[:, :n], ctx.x_q[:, :n], ctx.x_k[:, :n]
    )


def tail_queries(ctx: Context, n: int) -> Context:
    """All keys, and the queries of the last n tokens alone."""
    return dataclasses.replace(ctx, q=ctx.q[:, :, -n:], q_pos=ctx.q_pos[:, -n:], x_q=ctx.x_q[:, -n:])


def future_error(t: LawTrial, n: int = 7) -> float:
    """Change of the first n rows of logits when the tokens after them change."""
    x = t.contents()
    other = torch.cat([x[:, :n], t.contents()[:, n:]], 1)
    return past_error(n, *(t.encoding.logits(t.context(tokens, t.pos)) for tokens in (x, other)))


def prefix_error(t: LawTrial, pos: Tensor, n: int = 7) -> float:
    """Change of the first n rows of logits when the tokens after them go."""
    ctx = t.context(t.contents(), pos)
    return past_error(n, t.encoding.logits(ctx), t.encoding.logits(head(ctx, n)))


def past_error(n: int, *logits: Tensor) -> float:
    """Largest difference where the first n queries look at the past."""
    one, other = (some[..., :n, :n].tril() for some in logits)
    return float((one - other).detach().abs().max())


@pytest.mark.parametrize("config", CASES)
class TestEveryEncoding:
    @pytest.mark.parametrize("causal", [True, False])
    def test_keeps_the_laws_it_declares_and_breaks_the_others(self, config, causal):
        sizes = Sizes(causal=causal)
        if not causal and config.kind in CAUSAL_ALONE:
            with pytest.raises(ConfigError, match="needs a causal model"):
                fitted(config, sizes)
            return
        checks = check_laws(built(fitted(config, sizes)), sizes)
        assert [c for c in checks if not c.honest or c.rounds] == []

    def test_every_field_matters(self, config):
        before = fingerprint(config)
        for others in perturbed(config):
            assert any(not same(fingerprint(other), before) for other in others), f"no effect: {others}"
        assert same(fingerprint(config), before)

    def test_reads_back_equal_and_hashes_apart(self, config):
        assert OneOf(ENCODINGS).read(to_dict(config)) == config
        changes = [config, *(other for others in perturbed(config) for other in others)]
        assert len({config_hash(change) for change in changes}) == len(changes)

    def test_sees_no_future_and_a_length_where_it_says_so_alone(self, config):
        t = trial(config)
        assert future_error(t) < 1e-9
        assert (max(prefix_error(t, pos) for pos in spreads(t)) < 1e-9) == t.encoding.prefix_consistent

    def test_queries_may_be_the_last_tokens_alone(self, config):
        t = trial(config)
        ctx = t.context(t.contents(), t.pos)
        rows = t.encoding.logits(tail_queries(ctx, 3))
        assert_close(rows, t.encoding.logits(ctx)[..., -3:, :])

    def test_a_logit_is_of_its_own_query_and_key_where_it_says_so_alone(self, config):
        t = trial(config)
        ctx, other = (t.context(t.contents(), t.pos) for _ in range(2))
        rows, columns = torch.arange(12).roll(5), torch.arange(12).flip(0)
        moved = Context(ctx.q[:, :, rows], ctx.k[:, :, columns], t.pos[:, rows], t.pos[:, columns])
        moved = dataclasses.replace(moved, x_q=other.x_q, x_k=other.x_k)
        change = t.encoding.logits(moved) - t.encoding.logits(ctx)[:, :, rows][..., columns]
        assert (float(change.detach().abs().max()) < 1e-9) == t.encoding.pairwise

    def test_positions_per_batch_or_shared_whole_or_fractional(self, config):
        t = trial(config)
        x, expected = t.contents(), None
        for pos in (t.pos, t.pos.expand(2, -1), t.pos.int(), t.pos.float(), t.pos.double()):
            logits = t.logits(x, pos)
            assert_close(logits, t.logits(x, t.pos) if expected is None else expected)
            expected = logits
        assert torch.isfinite(t.logits(x, t.pos + 0.5)).all()

    def test_sequences_of_a_batch_do_not_mix(self, config):
        t = trial(config)
        x, pos = t.contents(), torch.stack([t.pos[0], t.pos[0] * 3])
        both = t.logits(x, pos)
        assert_close(both[:1], t.logits(x[:1], pos[:1]))
        assert_close(both[1:], t.logits(x[1:], pos[1:]))

    def test_keeps_nothing_between_calls(self, config):
        t = trial(config)
        x = t.contents()
        first = t.logits(x, t.pos)
        t.logits(t.contents(), t.pos * 2)
        t.encoding.logits(head(t.context(x, t.pos), 5))
        assert torch.equal(t.logits(x, t.pos), first)

    def test_half_precision_stays_close_and_keeps_its_dtype(self, config):
        t = trial(config)
        x, pos = t.contents(), t.pos + 30
        exact = t.encoding.logits(t.context(x, pos))
        encoding = copy.deepcopy(t.encoding).bfloat16()
        embedded = encoding.embed(x.bfloat16(), pos)
        assert embedded.dtype is torch.bfloat16
        ctx = t.context(x, pos)
        low = Context(ctx.q.bfloat16(), ctx.k.bfloat16(), pos, pos, ctx.x_q.bfloat16(), ctx.x_k.bfloat16())
        logits = encoding.logits(low)
        assert logits.dtype is torch.bfloat16
        assert_close(logits.double(), exact, atol=0.05 * float(exact.detach().abs().max()), rtol=0)

    @pytest.mark.parametrize("autocast", [False, True])
    def test_bfloat16_meets_weights_in_float32(self, config, autocast):
        t = trial(config)
        ctx = t.context(t.contents(), t.pos)
        low = {"x_q": ctx.x_q.bfloat16(), "x_k": ctx.x_k.bfloat16(), "q_pos": t.pos, "k_pos": t.pos}
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            logits = copy.deepcopy(t.encoding).float()(ctx.q.bfloat16(), ctx.k.bfloat16(), **low)
        exact = t.encoding.logits(ctx)
        assert_close(logits.double(), exact, atol=0.05 * float(exact.detach().abs().max()), rtol=0)

    def test_float32_agrees_with_float64(self, config):
        t = trial(config)
        ctx = t.context(t.contents(), t.pos)
        single = [v.float() for v in (ctx.q, ctx.k)]
        low = Context(*single, t.pos, t.pos, ctx.x_q.float(), ctx.x_k.float())
        logits = copy.deepcopy(t.encoding).float().logits(low)
        assert logits.dtype is torch.float32
        assert_close(logits.double(), t.encoding.logits(ctx), atol=2e-5, rtol=2e-5)

    def test_gradient_reaches_inputs_and_learned_parameters_alone(self, config):
        t = trial(config)
        x = t.contents().requires_grad_()
        for pos in spreads(t):
            ctx = t.context(x, pos)
            logits = t.encoding.logits(ctx)
            outputs = t.encoding.read(logits.softmax(-1), ctx.k, ctx)
            ((logits * t.draw(*logits.shape)).sum() + (outputs * t.draw(*outputs.shape)).sum()).backward()
        assert x.grad is not None
        assert float(x.grad.abs().min()) > 0
        parameters = dict(t.encoding.named_parameters())
        assert bool(parameters) == (Tag.LEARNED in t.encoding.tags)
        for name, parameter in parameters.items():
            assert parameter.grad is not None, name
            assert torch.isfinite(parameter.grad).all(), name
            assert float(parameter.grad.abs().max()) > 0, name

    def test_never_asks_the_device_for_a_number(self, config):
        t = trial(config)
        ctx = t.context(t.contents(), t.pos)
        encoding = t.encoding.to("meta")
        values = [v.to("meta") for v in (ctx.q, ctx.k, ctx.q_pos, ctx.k_pos, ctx.x_q, ctx.x_k)]
        assert encoding.logits(Context(*values)).shape == (2, SIZES.n_heads, 12, 12)

    def test_logits_are_those_of_its_form(self, config):
        t = trial(config)
        ctx = t.context(t.contents(), t.pos)
        e = t.encoding
        if e.form is Form.GENERAL:
            pytest.skip("a GENERAL encoding has no other form to compare with")
        q, k = e.rotate(e.scaled(ctx.q), ctx.q_pos, "query"), e.rotate(ctx.k, ctx.k_pos, "key")
        expected = torch.einsum("bhid,bhjd->bhij", q, k) / SIZES.head_dim**0.5
        bias = e.bias(ctx)
        assert (bias is None) == (e.form is Form.DOT)
        if e.form is Form.DOT_PLUS_LAG:
            assert_close(bias, torch.stack([row.T for row in e.lag_bias(ctx.lag.double())[0]], 1)[None])
        assert_close(e.logits(ctx), expected if bias is None else expected + bias)


def test_a_factor_on_products_is_no_rotation():
    for name, factor in (("tupe", 2**-0.5), ("deberta", 3**-0.5)):
        encoding = built(fitted(ENCODINGS.config(name)()))
        assert (encoding.logit_scale, encoding.scales, encoding.turns) == (factor, True, False)
    assert [name for name in ENCODINGS if built(fitted(ENCODINGS.config(name)())).scales] == [
        "deberta",
        "tupe",
    ]


def test_hashes_of_all_configurations_differ():
    assert len({config_hash(fitted(config)) for config in CONFIGS}) == len(CONFIGS)


@pytest.mark.parametrize("name", list(ENCODINGS))
def test_the_catalogue_has_formula_family_and_reference(name):
    entry = describe(name)
    assert entry.summary.endswith((".", ":"))
    assert entry.formula
    assert entry.reference
    assert (entry.family == "none") == (name == "nope")


class Stretched(Encoding):
    """Declares every law and scales queries by their position."""

    def rotate(self, x: Tensor, pos: Tensor, side: str) -> Tensor:
        return x * (1 + pos[:, None, :, None]) if side == "query" else x


class Peeking(Encoding):
    """Declares no dependence on tokens, yet centres keys over the sequence, the future included."""

    def rotate(self, x: Tensor, pos: Tensor, side: str) -> Tensor:
        return x.relu() - x.mean(2, keepdim=True)


class Telling(Encoding):
    """Declares no dependence on tokens, yet adds their product once more, which is as bilinear."""

    form = Form.DOT_PLUS_BIAS
    tags = frozenset({Tag.SHIFT_INVARIANT, Tag.CONTENT_FREE})

    def bias(self, ctx: Context) -> Tensor:
        return ctx.q @ ctx.k.mT


class Idle(Encoding):
    """Declares parameters to train, and has none; breaks no other law, and declares none."""

    tags = frozenset({Tag.LEARNED})


class Remembering(Encoding):
    """Keeps the rotation of its first call."""

    seen: Tensor | None = None

    def rotate(self, x: Tensor, pos: Tensor, side: str) -> Tensor:
        if self.seen is None:
            self.seen = pos.double().cos()[:, None, :, None]
        return x * self.seen


class Single(Encoding):
    """Rotates by angles in float32, off by its rounding."""

    tags = frozenset({Tag.SHIFT_INVARIANT, Tag.CONTENT_FREE, Tag.ISOMETRIC})

    def rotate(self, x: Tensor, pos: Tensor, side: str) -> Tensor:
        angle = (pos.float()[:, None, :, None] * torch.tensor([1.0, 0.01])).to(torch.float32)
        cos, sin = (torch.cat([wave, wave], -1).to(x.dtype) for wave in (angle.cos(), angle.sin()))
        first, second = x[..., :4].chunk(2, -1)
        turned = x[..., :4] * cos + torch.cat([-second, first], -1) * sin
        return torch.cat([turned, x[..., 4:]], -1)


def test_rounding_of_float32_is_not_taken_for_a_violation():
    checks = {check.law: check for check in check_laws(Single())}
    shift = checks[Tag.SHIFT_INVARIANT]
    assert 1e-6 < shift.error < 0.1
    assert shift.widened_error < 1e-10
    assert shift.holds
    assert shift.honest
    assert "float32 rounding" in shift.note
    assert torch.get_default_dtype() is torch.float32


def test_a_note_says_what_to_do_about_a_wrong_declaration():
    checks = {check.law: check for check in check_laws(Telling(ENCODINGS.config("nope")()))}
    assert checks[Tag.CONTENT_FREE].note == "the declaration is wrong; remove the tag"


@pytest.mark.parametrize(
    ("fault", "caught"),
    [
        (Stretched, {Tag.SHIFT_INVARIANT, Tag.ISOMETRIC}),
        (Peeking, {Tag.CONTENT_FREE, Tag.ISOMETRIC}),
        (Telling, {Tag.CONTENT_FREE}),
        (Idle, set(Tag)),
    ],
)
def test_false_declarations_are_caught(fault, caught):
    encoding = fault(ENCODINGS.config("nope")())
    assert {check.law for check in check_laws(encoding) if not check.honest} == caught


def test_a_look_into_the_future_is_caught():
    t = LawTrial(Peeking(ENCODINGS.config("nope")()), SIZES)
    assert future_error(t) > 0.01
    assert prefix_error(t, t.pos) > 0.01


def test_a_memory_of_earlier_calls_is_caught():
    t = LawTrial(Remembering(ENCODINGS.config("nope")()), SIZES)
    x = t.contents()
    first = t.logits(x, t.pos + 5)
    fresh = LawTrial(Remembering(ENCODINGS.config("nope")()), SIZES)
    fresh.logits(x, fresh.pos)
    assert not torch.equal(fresh.logits(x, fresh.pos + 5), first)
