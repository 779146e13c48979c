import pytest
from tests.lab.ablation.models import decoder, examples

from spectrope.lab.ablation.cumulative import cumulative_curve
from spectrope.lab.ablation.heads import ablated
from spectrope.lab.ablation.interventions import HeadAblation
from spectrope.lab.ablation.protocols import Protocol
from spectrope.lab.ablation.sweep import sweep
from spectrope.lab.evaluation.score import predict


@pytest.mark.parametrize("fill", ["zero", "value-bias"])
def test_heads_go_one_after_the_other_strongest_first(fill):
    model, data = decoder(), examples(50)
    exact = sweep(model, data, protocol=Protocol(fill=fill))
    curve = cumulative_curve(model, data, exact)
    assert [step.single for step in curve] == sorted((row.drop for row in exact.drops()), reverse=True)
    assert [step.n_changed for step in curve] == list(range(1, 13))
    assert len({(step.layer, step.head) for step in curve}) == 12
    intact = (predict(model, data).argmax(-1) == data.labels).double().mean().item()
    gone = []
    for step in curve:
        gone.append(HeadAblation(step.layer, step.head, fill))
        with ablated(model, *gone):
            right = (predict(model, data).argmax(-1) == data.labels).double().mean().item()
        assert step.accuracy == pytest.approx(right)
        assert step.drop.estimate == pytest.approx(100 * (intact - right))
        assert step.drop.low < step.drop.estimate < step.drop.high


def test_the_first_step_is_the_largest_single_drop():
    model, data = decoder(), examples(50)
    first = cumulative_curve(model, data, sweep(model, data))[0]
    assert first.drop.estimate == pytest.approx(first.single)
