"""Claim 10 on rows with known answers, and its controls."""

import polars as pl
import pytest
import torch
from tests.lab.engines.test_local import tiny
from tests.study.made import jitter, row, rows_of, together

from spectrope.attention.multi_head import MultiHead
from spectrope.lab.job import Job, complete
from spectrope.study.claims.dropout import Dropout
from spectrope.study.claims.intrinsic_deposit import IntrinsicDeposit, couplings, in_gradient
from spectrope.study.rows import StudyRow

CLAIM = IntrinsicDeposit()
EVEN, GATHERED = (1.0, 1.0, 1.0, 1.0), (1.0, 0.0, 0.0, 0.0)


def energies(*layers, steps=(0, 20)):
    """The same energies of four heads at every step."""
    return pl.DataFrame(
        [
            {"step": step, "layer": layer, "head": head, "energy": 1.0, "projections": energy}
            for step in steps
            for layer, heads in enumerate(layers)
            for head, energy in enumerate(heads)
        ]
    )


def say(multiplicative=40.0, additive=1.0, gathered=("rope", "shuffled"), odd=()):
    """Gaps of the couplings, whose gradients gather in one head or not; `odd` arms have the other gap."""

    def tell(arm, seed):
        name = arm.split("/")[0]
        high = (name != "additive") != (arm in odd)
        gap = multiplicative if high else additive
        heads = GATHERED if name in gathered else EVEN
        return {
            "gaps": (gap + jitter(seed), 1.0, 1.0),
            "tables": {"head_gradients": energies(heads, heads)},
        }

    return tell


@pytest.mark.parametrize(
    ("tell", "outcome"),
    [
        (say(), "reproduced"),
        (say(odd=("rope/sgd",)), "contradicted"),  # No deposit by gradient descent.
        (say(odd=("additive/small",)), "contradicted"),  # One without multiplication.
        (say(odd=("shuffled",)), "contradicted"),
        (say(gathered=()), "saturated"),  # Gradients do not gather.
        (say(multiplicative=10.5), "undecided"),
    ],
)
def test_known_rows(tell, outcome):
    assert together(CLAIM.judge(rows_of(CLAIM, tell))) == outcome


def test_participation_is_averaged_over_layers_and_steps():
    one = CLAIM.arms("controlled", "mini", 0)["rope"]
    half = row(one, tables={"head_gradients": energies(EVEN, GATHERED)})
    assert in_gradient(half) == pytest.approx((1 + 0.25) / 2)
    assert in_gradient(row(one)) is None
    for lost in ((1.0, None, 1.0, 1.0), (1.0, float("inf"), 1.0, 1.0), (0.0, 0.0, 0.0, 0.0)):
        assert in_gradient(row(one, tables={"head_gradients": energies(EVEN, lost)})) is None


def test_the_arms_differ_in_one_thing_each():
    arms = couplings("controlled", "mini", 3)
    assert arms["rope"] == Dropout().arms("controlled", "mini", 3)["rope/0"]
    assert len(arms) == len(set(arms.values())) == 9
    for name, one in arms.items():
        assert (one.training.optimiser == "sgd") == ("sgd" in name)
        assert one.model.attention == MultiHead.Config(start=0.1 if "small" in name else 1.0)
    assert arms["additive/small"].model.encoding.std == pytest.approx(
        0.1 * arms["additive"].model.encoding.std
    )
    shuffled = arms["shuffled"].model.encoding.schedule
    assert (shuffled.kind, shuffled.max_length) == ("shuffled", arms["rope"].model.max_length)


def test_a_trained_network_has_a_participation(tmp_path):
    run = complete(Job(tiny(), ("head_gradients",)), tmp_path, torch.device("cpu"))
    assert 1 / tiny().model.n_heads <= in_gradient(StudyRow.of(run)) <= 1.0
