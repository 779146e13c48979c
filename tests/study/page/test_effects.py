"""The table of effects holds what the page prints."""

import numpy as np
import pytest
from tests.study.made import jitter, rows_of

from spectrope.study.claims.distance_ordering import DistanceOrdering
from spectrope.study.claims.dropout import Dropout
from spectrope.study.claims.latent_attention import LatentAttention
from spectrope.study.claims.partial_rope import PartialRoPE
from spectrope.study.page.effects import SCHEMA, effects


def test_each_part_has_its_role_interval_and_p_values():
    claim = LatentAttention()
    rows = rows_of(claim, lambda arm, seed: {"test": 90.0 - 20.0 * (arm == "distance/mla") + jitter(seed)})
    verdict = claim.judge(rows)
    table = effects([(claim, verdict)])
    assert dict(table.schema) == SCHEMA
    assert len(table) == len(verdict.findings)
    (headline,) = table.filter(role="headline").to_dicts()
    evidence = verdict.headline.evidence
    assert headline["claim_verdict"] == "contradicted"
    assert headline["estimate"] == pytest.approx(20.0)
    assert headline["p_contradicted"] == pytest.approx(evidence.p_contradicted, rel=1e-9)
    assert headline["paper"] == pytest.approx(92.64 - 88.34)
    assert set(table["role"]) == {"headline", "appendix"}
    assert set(table["chosen_from"]) == {1}


def test_the_last_digits_of_a_processor_do_not_show():
    def table(off):
        rows = rows_of(
            claim, lambda arm, seed: {"test": (90.0 - 20.0 * (arm == "distance/mla") + jitter(seed)) * off}
        )
        return effects([(claim, claim.judge(rows))])

    claim, ulp = LatentAttention(), float(np.finfo(float).eps)
    one, other = table(1.0), table(1.0 + ulp)
    assert one.write_csv() == other.write_csv()
    assert one["estimate"].to_list() != table(1.0 + 1e-8)["estimate"].to_list()


def test_exact_ties_have_no_p_values():
    claim = DistanceOrdering()
    rows = rows_of(claim, lambda arm, seed: {"test": 93.0 + 5 * (arm == "rope") + jitter(seed)})
    table = effects([(claim, claim.judge(rows))])
    tied = table.filter(part="ALiBi minus RoPE, time to learn")
    assert (tied["estimate"].to_list(), tied["seeds"].to_list()) == ([0.0], [6])
    for name in ("p_reproduced", "p_direction", "p_contradicted"):
        assert tied[name].to_list() == [None]
        assert table.filter(role="headline")[name].null_count() == 0


def test_the_nearest_of_several_rivals_is_told_as_chosen():
    claim = DistanceOrdering()
    rows = rows_of(claim, lambda arm, seed: {"test": 90.0 + (arm == "rope") + jitter(seed)})
    table = effects([(claim, claim.judge(rows))])
    assert table.filter(role="headline")["chosen_from"].to_list() == [5]


def test_parts_without_seeds_have_no_estimate():
    claim = Dropout()
    rows = rows_of(claim, lambda arm, seed: {} if arm == "rope/0" else None, seeds=2)
    table = effects([(claim, claim.judge(rows))])
    assert len(table.filter(role="premise")) == 1
    lost = table.filter(role="headline")
    assert lost["seeds"].to_list() == [0]
    assert lost["estimate"].to_list() == [None]


def test_what_is_not_measured_has_no_estimate_and_unfinished_training_is_named():
    claim = PartialRoPE()
    rows = rows_of(claim, lambda arm, seed: {"test": 100.0, "train": 80.0})
    table = effects([(claim, claim.judge(rows))], {("partial-rope", "controlled")})
    assert set(table["limit"]) == {"not measured"}
    assert set(table["estimate"]) == {None}
    assert set(table["p_contradicted"]) == {None}
    assert table["left_open"].all()
    assert effects([(claim, claim.judge(rows))], set())["left_open"].unique().to_list() == [False]
    assert effects([(claim, claim.judge(rows))])["left_open"].unique().to_list() == [None]
    assert table["training_unfinished"][0] == "RoPE on 8 heads 80.0 %, RoPE on 2 heads 80.0 %"
