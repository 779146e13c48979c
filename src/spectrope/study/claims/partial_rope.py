"""Claim 5: RoPE on some of the heads."""

from collections.abc import Iterator

from spectrope.encodings import EncodingConfig, Group, NoPE, PerHead, RoPE
from spectrope.lab import SCALES, Experiment, experiment
from spectrope.study.arms import ACCURACY
from spectrope.study.claim import Claim
from spectrope.study.predictions import AtLeast
from spectrope.study.quantities import Seen, held_out
from spectrope.study.verdict import Part

SHOWN = (0, 1, 2, 3, 5, 6, 13, 15, 16)  # Numbers of RoPE heads that the paper shows, of 16.
LATER = "; at `mini` all numbers of heads but 0, 1, 4, 7 and 8 were added once these had run"


class PartialRoPE(Claim, name="partial-rope"):
    """Accuracy against the number of heads that have RoPE."""

    number = 5
    title = "Partial RoPE stays below full RoPE"
    statement = "RoPE on k of the heads stays below full RoPE."
    source = "Sec. 5.1, figure 5"
    prediction = "acc(H heads) − acc(k heads) ≥ 2 points for 0 < k < H"
    test = (
        "Task 1; differences paired by seed, Student's t. No head has RoPE at k = 0. That Task 2 suffers "
        "too, which the text says without a number, is not tested. Under `released` no number of heads has "
        "the absolute term that the public code adds to full RoPE elsewhere (R3)."
    )
    paper = "figure 5; no number in the text"
    later = LATER

    def arms(self, condition: str, scale: str, seed: int) -> dict[str, Experiment]:
        n_heads = SCALES[scale]["distance"].model.n_heads
        return {
            str(k): experiment("distance", encoding, scale=scale, condition=condition, seed=seed)
            for k, encoding in by_count(condition, n_heads).items()
        }

    def parts(self, seen: Seen) -> Iterator[Part]:
        counts = sorted(map(int, seen.arms))
        for k in counts[1:-1]:
            yield Part(
                quantity=f"RoPE on all heads minus on {k}, held-out accuracy",
                prediction=AtLeast(ACCURACY),
                values=seen.minus(str(counts[-1]), str(k), held_out),
            )


def counts_of(n_heads: int) -> tuple[int, ...]:
    """Numbers of heads that have RoPE: those that the paper shows where it has that many heads, else all."""
    return SHOWN if n_heads == SHOWN[-1] else tuple(range(n_heads + 1))


def by_count(condition: str, n_heads: int) -> dict[int, EncodingConfig]:
    """RoPE on the first k heads, by k; NoPE and full RoPE at either end, so that runs are shared."""
    partial = {k: _on_heads(k, n_heads) for k in counts_of(n_heads)[1:-1]}
    return {0: NoPE.Config(), **partial, n_heads: full_rope(condition, n_heads)}


def full_rope(condition: str, n_heads: int) -> EncodingConfig:
    """RoPE on all heads, and nothing else: as a group of all heads it stays free of what R3 adds to RoPE."""
    return _on_heads(n_heads, n_heads) if condition == "released" else RoPE.Config()


def _on_heads(k: int, n_heads: int) -> EncodingConfig:
    return PerHead.Config(n_heads=n_heads, groups=(Group(heads=k),))
