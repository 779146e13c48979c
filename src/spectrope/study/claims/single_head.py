"""Claim 3: does one head of a shallow layer carry Task 1 with RoPE, and with no other encoding?"""

from collections.abc import Iterator

from spectrope.study.arms import (
    DEPTHS,
    NAMES,
    RIVALS,
    TASKS,
    Arms,
    by_encoding,
    no_head_stands_out,
    one_head_stands_out,
    runs_with_a_deposit,
)
from spectrope.study.claim import Claim
from spectrope.study.quantities import ABLATION, Seen, shallow
from spectrope.study.verdict import Part


class SingleHead(Claim, name="single-head"):
    """The single-head deposit pattern."""

    number = 3
    title = "Task 1: under RoPE most runs have a single-head deposit in the first half of the layers"
    statement = (
        "Under RoPE, ablating one head of a shallow layer destroys Task 1 accuracy; the other encodings, "
        "and Task 2, show no such head."
    )
    quote = (
        "under RoPE, ablating a single shallow-layer head causes a pronounced accuracy loss, indicating "
        "early-layer specialization."
    )
    source = "Sec. 5.1, figures 4 and 8; appendix C.2 tells of some shallow heads under absolute too"
    prediction = (
        "the deposit rule finds a deposit in the first half of the layers in most runs under RoPE on Task "
        "1 (headline), and in the first two thirds; gap ≥ 10 points in the first half; gap ≤ 10 points in "
        "every layer of the first half otherwise. Runs with a deposit in each layer, and under the other "
        "encodings, are shown for comparison"
    )
    test = (
        "The gap is the largest drop minus the second of its layer, on held-out examples that did not "
        "choose the head; its mean over seeds by Student's t. Under `released` heads are ablated as the "
        "public code does it, by R9 on both splits (R10). The rule adds that the head has most of its "
        "layer's drop, by bounds corrected for the number of layers. A deposit is an event: runs with one "
        "are counted over all seeds, whether the task was learned or not, at two depths, with the exact "
        "binomial interval. Where gaps are judged, a model that has not learned its task does not count."
    )
    paper = 'no number in the text, which has "a single shallow-layer head" (figure 4)'

    tables = (ABLATION,)
    least_layers = 6

    def arms(self, condition: str, scale: str, seed: int) -> Arms:
        return {
            f"{task}/{name}": one
            for task in TASKS
            for name, one in by_encoding(task, condition, scale, seed).items()
        }

    def parts(self, seen: Seen) -> Iterator[Part]:
        layers = shallow(seen.n_layers)
        rope = "RoPE, Task 1, "
        for words, depth in DEPTHS.items():
            for name in ("rope", *RIVALS):
                quantity = f"{NAMES[name]}, Task 1, runs with a deposit in the {words} of the layers"
                yield runs_with_a_deposit(
                    seen,
                    f"distance/{name}",
                    quantity,
                    shallow(seen.n_layers, depth),
                    for_comparison=name != "rope",
                )
        for layer in range(seen.n_layers):
            quantity = f"{rope}runs with a deposit in layer {layer}"
            yield runs_with_a_deposit(seen, "distance/rope", quantity, (layer,), for_comparison=True)
        yield one_head_stands_out(seen, "distance/rope", f"{rope}gap in shallow layers", layers)
        others = [("distance", name) for name in RIVALS] + [("counting", name) for name in NAMES]
        for task, name in others:
            words = f"{NAMES[name]}, {TASKS[task]}, gap in shallow layers"
            yield no_head_stands_out(seen, f"{task}/{name}", words, layers)
