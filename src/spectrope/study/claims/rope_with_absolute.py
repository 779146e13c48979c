"""Claim 6: RoPE with an absolute input term."""

from collections.abc import Iterator

from spectrope.encodings import RoPE, Sum
from spectrope.lab import SCALES
from spectrope.study.arms import (
    WHOLE,
    WITHOUT_DROPOUT,
    Arms,
    distance_at,
    no_head_stands_out,
    one_head_stands_out,
    planned,
    runs_with_a_deposit,
)
from spectrope.study.claim import Claim
from spectrope.study.claims.partial_rope import full_rope
from spectrope.study.quantities import ABLATION, Seen
from spectrope.study.verdict import Part


class RoPEWithAbsolute(Claim, name="rope-with-absolute"):
    """The deposit when a sinusoid is added to the input."""

    number = 6
    title = "RoPE with an absolute input term: no head of layer 0 dominates"
    statement = (
        "RoPE with an absolute input embedding has no deposit in layer 0; it reappears from layer 1 (layers "
        "1 and 2 in the paper, which counts from 1)."
    )
    quote = (
        "Due to the absolute position encoding, the deposit pattern no longer appears in the first layer. "
        "[…] However, starting from the second layer, the deposit pattern reappears"
    )
    source = "Sec. 5.2, figure 6"
    prediction = (
        "gap(layer 0) ≤ 10 points and gap(layers ≥ 1) ≥ 10 points under RoPE + absolute on Task 1, with a "
        "deposit in layers ≥ 1 in most runs, given gap(layer 0) ≥ 10 points under RoPE alone"
    )
    test = (
        "The gap as in claim 3, of models that have learned the task. Where RoPE alone has no deposit in "
        "layer 0, none can be gone, and the claim cannot be tested. At `mid` and `paper` it also runs with "
        "the scale's dropout, and on Task 2. Under `released` RoPE alone is that of the public code's "
        "partial RoPE, on all heads, and RoPE + absolute its RoPE of every other figure (R3). "
        f"{WITHOUT_DROPOUT}"
    )
    paper = "figure 6; no number in the text"
    tables = (ABLATION,)
    least_layers = 6
    times = 2

    def arms(self, condition: str, scale: str, seed: int) -> Arms:
        alone = full_rope(condition, SCALES[scale]["distance"].model.n_heads)
        both = RoPE.Config() if condition == "released" else Sum.Config()  # R3 adds the absolute term.
        encodings = {"alone": alone, "both": both}
        arms = {
            name: distance_at(0.0, encoding, condition, scale, seed) for name, encoding in encodings.items()
        }
        if scale not in WHOLE:
            return arms
        return arms | {
            "both with dropout": planned("distance", both, scale=scale, condition=condition, seed=seed),
            "counting/both": planned("counting", both, scale=scale, condition=condition, seed=seed),
        }

    def parts(self, seen: Seen) -> Iterator[Part]:
        later = range(1, seen.n_layers)
        both = "RoPE + absolute, "
        yield one_head_stands_out(seen, "alone", "RoPE alone, gap in layer 0", (0,), premise=True)
        yield no_head_stands_out(seen, "both", f"{both}gap in layer 0", (0,))
        yield one_head_stands_out(seen, "both", f"{both}gap from layer 1", later)
        yield runs_with_a_deposit(seen, "both", f"{both}runs with a deposit from layer 1", later)
        others = {"both with dropout": "at the scale's dropout", "counting/both": "Task 2"}
        for arm in (name for name in others if name in seen.arms):
            yield no_head_stands_out(seen, arm, f"{both}{others[arm]}, gap in layer 0", (0,))
