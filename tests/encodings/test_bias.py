"""Logit biases against T5's and BLOOM's code, and their refusals."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.t5.modeling_t5 import T5Attention

from spectrope.core.errors import ConfigError, UnsupportedError
from spectrope.encodings.alibi import ALiBi, alibi_slopes
from spectrope.encodings.base import ENCODINGS, Encoding, Form
from spectrope.encodings.factorised import FactorisedTable
from spectrope.encodings.relative import RelativeTable
from spectrope.encodings.t5 import T5, t5_bucket

LAGS = torch.arange(-600, 601)


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("n_buckets", "max_distance"), [(32, 128), (32, 20), (8, 64), (64, 1000)])
def test_buckets_are_those_of_t5(bidirectional, n_buckets, max_distance):
    options = {"bidirectional": bidirectional, "max_distance": max_distance}
    expected = T5Attention._relative_position_bucket(-LAGS, num_buckets=n_buckets, **options)
    assert torch.equal(t5_bucket(LAGS, n_buckets=n_buckets, **options), expected)


def test_t5_reads_its_table_by_bucket():
    t5 = T5.Config(n_heads=3, causal=False, n_buckets=8, max_distance=16).build()
    bias = t5.lag_bias(torch.tensor([0, 1, -1, 100, -100]))
    assert torch.equal(bias, t5.table[[0, 1, 5, 3, 7]])


@pytest.mark.parametrize("n_heads", [1, 2, 3, 6, 8, 12, 16, 20, 71])
def test_alibi_is_blooms_up_to_a_constant_per_row(n_heads):
    n = 40
    expected = build_alibi_tensor(torch.ones(1, n), n_heads, torch.float32)[:, 0]
    last_row = ALiBi.Config(n_heads=n_heads).build().lag_bias(n - 1 - torch.arange(n)).T
    assert_close(last_row - last_row[:, :1], expected, rtol=1e-5, atol=1e-5)


def test_alibi_slopes_of_the_paper():
    assert_close(alibi_slopes(8), 0.5 ** torch.arange(1, 9, dtype=torch.float64))


def test_exponential_slopes_of_the_released_code():
    bias = ALiBi.Config(n_heads=4, slopes="exponential").build().lag_bias(torch.tensor([-2, 0, 1]))
    slopes = torch.tensor([1.0, 0.7788, 0.6065, 0.4724])
    assert_close(bias, torch.stack([-2 * slopes, 0 * slopes, -slopes]), rtol=1e-4, atol=0)


def test_alibi_may_leave_the_future_alone_or_learn_its_slopes():
    lags = torch.tensor([-3, 0, 3])
    alibi = ALiBi.Config(n_heads=2).build()
    past = ALiBi.Config(n_heads=2, symmetric=False).build()
    assert_close(past.lag_bias(lags), alibi.lag_bias(lags) * torch.tensor([0.0, 1.0, 1.0])[:, None])
    learned = ALiBi.Config(n_heads=2, learned=True).build()
    assert_close(learned.lag_bias(lags), alibi.lag_bias(lags))
    (grad,) = torch.autograd.grad(learned.lag_bias(lags).sum(), learned.trained)
    assert_close(grad, torch.tensor([-6.0, -6.0]))


@given(n_heads=st.integers(1, 130), near=st.integers(0, 5000), further=st.integers(1, 5000))
def test_alibi_falls_with_distance_alike_on_both_sides(n_heads, near, further):
    alibi = ALiBi.Config(n_heads=n_heads).build()
    a, b, mirrored = alibi.lag_bias(torch.tensor([near, near + further, -near], dtype=torch.float64))
    assert (b < a).all()
    assert torch.equal(mirrored, a)
    assert len(set(alibi.slopes.tolist())) == n_heads


def test_relative_table_has_a_row_per_lag_and_refuses_others():
    relative = RelativeTable.Config(n_heads=2, max_length=5).build()
    assert relative.table.shape == (9, 2)
    assert torch.equal(relative.lag_bias(torch.arange(-4, 5)), relative.table)
    for lag in (5, -5):
        with pytest.raises(UnsupportedError, match="RelativeTable has a table of 9 rows"):
            relative.lag_bias(torch.tensor([lag]))


def test_a_factorised_table_is_the_table_of_its_products():
    factorised = FactorisedTable.Config(n_heads=3, max_length=5, rank=2).build()
    relative = RelativeTable.Config(n_heads=3, max_length=5).build()
    with torch.no_grad():
        relative.table.copy_(torch.einsum("hr,nhr->nh", factorised.heads, factorised.lags))
    lags = torch.tensor([[0, 4], [-4, 1]])
    assert_close(factorised.lag_bias(lags), relative.lag_bias(lags))
    with pytest.raises(UnsupportedError, match="FactorisedTable has a table of 9 rows"):
        factorised.lag_bias(torch.tensor(5))


@pytest.mark.parametrize("kind", ["t5", "relative"])
def test_tables_start_with_the_chosen_spread(kind):
    config = ENCODINGS.config(kind)(n_heads=4096, std=0.1)
    assert config.build().table.std().item() == pytest.approx(0.1, rel=0.01)


def test_encodings_without_a_bias_of_the_lag_say_so():
    with pytest.raises(UnsupportedError, match="NoPE has no bias of the lag alone"):
        ENCODINGS.config("nope")().build().lag_bias(LAGS)


@pytest.mark.parametrize(
    ("config", "fields", "message"),
    [
        (ALiBi.Config, {"n_heads": 0}, "n_heads must be at least 1"),
        (FactorisedTable.Config, {"n_heads": 0}, "n_heads must be at least 1"),
        (FactorisedTable.Config, {"max_length": 0}, "max_length must be at least 1"),
        (FactorisedTable.Config, {"rank": 0}, "rank must be at least 1"),
        (FactorisedTable.Config, {"std": -1.0}, "std must be at least 0"),
        (RelativeTable.Config, {"n_heads": 0}, "n_heads must be at least 1"),
        (RelativeTable.Config, {"max_length": 0}, "max_length must be at least 1"),
        (RelativeTable.Config, {"std": -1.0}, "std must be at least 0"),
        (T5.Config, {"n_heads": 0}, "n_heads must be at least 1"),
        (T5.Config, {"n_buckets": 7}, "n_buckets must be even and at least 4; got 7"),
        (T5.Config, {"max_distance": 16}, "max_distance must be above 16"),
        (T5.Config, {"max_distance": 8, "causal": False}, "max_distance must be above 8"),
        (T5.Config, {"std": -1.0}, "std must be at least 0"),
    ],
)
def test_impossible_sizes_are_refused(config, fields, message):
    with pytest.raises(ConfigError, match=message):
        config(**fields)


def test_a_bias_of_the_lag_that_nothing_adds_is_refused():
    with pytest.raises(
        ConfigError, match=r"Lost\.lag_bias would be ignored; derive from sp\.encodings\.LagBias"
    ):

        class Lost(Encoding):
            def lag_bias(self, lag):
                return lag[..., None]

    class Kept(Encoding):
        form = Form.DOT_PLUS_LAG

        def lag_bias(self, lag):
            return lag[..., None].float()

        def bias(self, ctx):
            return self.lag_bias(ctx.lag).movedim(-1, -3)

    assert Kept()(torch.zeros(1, 1, 2, 4), torch.zeros(1, 1, 2, 4))[0, 0].tolist() == [[0, -1], [1, 0]]


@pytest.mark.parametrize(
    ("method", "needed"), [("logits", "GENERAL"), ("read", "GENERAL"), ("bias", "DOT_PLUS_BIAS")]
)
def test_a_method_that_the_declared_form_leaves_unused_is_refused(method, needed):
    told = (
        rf"Own\.{method} would be ignored by implementations for the form DOT; .*Form\.{needed}` in the class"
    )
    own = {method: lambda self, *of_call: None}
    with pytest.raises(ConfigError, match=told):
        type("Own", (Encoding,), own)()
    assert type("Own", (Encoding,), own | {"form": Form[needed]})().form is Form[needed]


def test_a_form_that_is_set_for_the_configuration_is_trusted():
    def setup(self, config):
        self.form = Form.GENERAL

    assert type("Own", (Encoding,), {"setup": setup, "logits": lambda self, ctx: None})().form is Form.GENERAL


@pytest.mark.parametrize(("n_buckets", "max_distance"), [(6, 20), (7, 30), (32, 128)])
def test_buckets_follow_their_formula_also_in_odd_numbers(n_buckets, max_distance):
    exact, lags = n_buckets // 2, torch.arange(200)
    found = t5_bucket(lags, bidirectional=False, n_buckets=n_buckets, max_distance=max_distance)
    for lag, bucket in zip(lags.tolist(), found.tolist(), strict=True):
        scale = math.log(max(lag, exact) / exact) / math.log(max_distance / exact) * (n_buckets - exact)
        if abs(scale - round(scale)) > 1e-4:  # At a boundary the float32 of the authors' code decides.
            assert bucket == (lag if lag < exact else min(n_buckets - 1, exact + math.floor(scale)))


@pytest.mark.parametrize(("n_buckets", "max_distance"), [(32, 16), (32, 8), (1, 128)])
def test_buckets_that_no_scale_has_are_refused(n_buckets, max_distance):
    with pytest.raises(ConfigError, match="max_distance must exceed the number of buckets"):
        t5_bucket(torch.arange(3), bidirectional=False, n_buckets=n_buckets, max_distance=max_distance)


@pytest.mark.parametrize("n_heads", [0, -3])
def test_slopes_of_no_heads_are_refused(n_heads):
    with pytest.raises(ConfigError, match="n_heads must be at least 1"):
        alibi_slopes(n_heads)
