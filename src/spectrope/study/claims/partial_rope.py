"""Claim 5: RoPE on a subset of the heads."""

from collections.abc import Iterator

from spectrope.encodings import EncodingConfig, Group, NoPE, PerHead, RoPE
from spectrope.lab import SCALES
from spectrope.study.arms import WHOLE, Arms, ahead, planned
from spectrope.study.claim import Claim
from spectrope.study.quantities import Seen
from spectrope.study.verdict import Part

SHOWN = (0, 1, 2, 3, 5, 6, 13, 15, 16)  # Numbers of RoPE heads that the paper shows, of 16.
COUNTING = "counting/"  # How arms of Task 2 begin.
LATER = "; at `mini` all numbers of heads but 0, 1, 4, 7 and 8 were added once these had run"


class PartialRoPE(Claim, name="partial-rope"):
    """Accuracy against the number of heads that have RoPE."""

    number = 5
    title = "RoPE on a quarter of the heads stays below RoPE on all"
    statement = "Even a handful of heads with RoPE leaves Task 1 below what RoPE on all heads reaches."
    quote = (
        "even with only a handful of RoPE-enabled heads, Task 1 performance remains below-near-optimal, and "
        "Task 2 generalization is shocked."
    )
    source = (
        'Sec. 5.1, figure 5. Read as "below"; "near-optimal", which the sentence before it suggests, '
        "would be the opposite prediction"
    )
    prediction = (
        "odds(H heads) ≥ 1.22 odds(k heads) of a right held-out answer, k = H/4 (headline) and 0 < k < H"
    )
    test = (
        "Task 1, and at `mid` and `paper` Task 2, which suffers too by the text; differences of log "
        "odds paired by seed, Student's t. No head has RoPE at k = 0. Under `released` no number of "
        "heads has the absolute term that the public code adds to full RoPE elsewhere (R3)."
    )
    paper = "figure 5; no number in the text"
    later = LATER

    def arms(self, condition: str, scale: str, seed: int) -> Arms:
        n_heads = SCALES[scale]["distance"].model.n_heads
        tasks = {"": "distance", COUNTING: "counting"} if scale in WHOLE else {"": "distance"}
        return {
            f"{prefix}{k}": planned(task, encoding, scale=scale, condition=condition, seed=seed)
            for prefix, task in tasks.items()
            for k, encoding in by_count(condition, scale, n_heads).items()
        }

    def parts(self, seen: Seen) -> Iterator[Part]:
        counts = sorted(int(arm) for arm in seen.arms if arm.isdigit()) or [0]
        some = counts[1:-1]
        few = min(some, key=lambda k: abs(4 * k - counts[-1]), default=0)
        for prefix, task in {"": "", COUNTING: "Task 2, "}.items():
            for k in (few, *(k for k in some if k != few)):
                words = "a quarter of them" if k == few else f"{k}"
                arms = (f"{prefix}{counts[-1]}", f"{prefix}{k}")
                if set(arms) <= set(seen.arms) or not prefix:
                    yield ahead(seen, *arms, f"{task}RoPE on all heads minus on {words}")


def counts_of(scale: str, n_heads: int) -> tuple[int, ...]:
    """Numbers of heads that have RoPE: quarters at `mid`, the paper's where it has as many, else all."""
    if scale == "mid":
        return tuple(range(0, n_heads + 1, n_heads // 4))
    return SHOWN if n_heads == SHOWN[-1] else tuple(range(n_heads + 1))


def by_count(condition: str, scale: str, n_heads: int) -> dict[int, EncodingConfig]:
    """RoPE on the first k heads, by k; NoPE and full RoPE at either end, so that runs are shared."""
    partial = {k: _on_heads(k, n_heads) for k in counts_of(scale, n_heads)[1:-1]}
    return {0: NoPE.Config(), **partial, n_heads: full_rope(condition, n_heads)}


def full_rope(condition: str, n_heads: int) -> EncodingConfig:
    """RoPE on all heads, and nothing else: as a group of all heads it stays free of what R3 adds to RoPE."""
    return _on_heads(n_heads, n_heads) if condition == "released" else RoPE.Config()


def _on_heads(k: int, n_heads: int) -> EncodingConfig:
    return PerHead.Config(n_heads=n_heads, groups=(Group(heads=k),))
