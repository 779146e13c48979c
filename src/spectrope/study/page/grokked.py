"""Summary sentence on grokking, computed from rows, and omitted if they are missing."""

from collections.abc import Iterator
from statistics import fmean

from spectrope.stats import MIN_SEEDS
from spectrope.study.claims.grok_distribution import MOST, GrokDistribution
from spectrope.study.claims.grok_med import RIVALS, GrokMed, strength
from spectrope.study.grok_arms import held, last, scaled
from spectrope.study.predictions import nearest
from spectrope.study.quantities import difference
from spectrope.study.rows import StudyRows
from spectrope.study.study import Study

CONDITION = "described"  # The only one of the second paper's claims.
SQUARE, AS_MANY = f"square/{MOST}", "random/square"


def grokked(study: Study, rows: StudyRows) -> Iterator[str]:
    """Accuracies from equally many pairs, drawn at random or outside a square, and how MED fared."""
    claim = GrokDistribution()
    seen = claim.see(rows, CONDITION, study.scale, study.seeds_of(claim, CONDITION))
    test, hole = last("test_accuracy", 100.0), last("held_out_accuracy", 100.0)
    seeds = seen.complete((AS_MANY, SQUARE), test) & seen.complete((SQUARE,), hole)
    if len(seeds) < MIN_SEEDS:
        return
    one = held("square", MOST, study.scale, min(seeds))
    pairs, k = len(one.task.build().split(one.seed).train), scaled(MOST, study.scale)
    drawn, beside, within = (
        fmean(seen.values(arm, quantity)[seed] for seed in seeds)
        for arm, quantity in ((AS_MANY, test), (SQUARE, test), (SQUARE, hole))
    )
    others = _outside(one.task.p**2 - pairs, (k + 1) ** 2, beside, within)
    yield (
        f"**Models of one layer that train on {pairs:,} pairs answer {drawn:.1f} % of all other sums modulo "
        f"{one.task.p} if those pairs are drawn at random, and {beside:.1f} % if they all lie outside a "
        f"square.** The square has the pairs with both operands at most {k}, of which {within:.1f} % are "
        f"answered{others}. All train for {one.training.steps:,} steps, n = {len(seeds)}."
        f"{_measures(study, rows)}"
    )


def _outside(tested: int, hole: int, beside: float, within: float) -> str:
    """Accuracy on the test pairs that do not lie in the square; empty if all do."""
    if tested == hole:
        return ""
    return f", and {(tested * beside - hole * within) / (tested - hole):.1f} % of the other test pairs"


def _measures(study: Study, rows: StudyRows) -> str:
    """How closely MED, its strongest rival and the mere number of the step follow the test loss; empty with
    too few runs."""
    claim = GrokMed()
    seen = claim.see(rows, CONDITION, study.scale, study.seeds_of(claim, CONDITION))
    rho = {name: seen.values("random", strength(name)) for name in ("med", "step", *RIVALS)}
    seeds = set[int].intersection(*map(set, rho.values()))
    if len(seeds) < MIN_SEEDS:
        return ""
    rival = nearest({name: difference(rho["med"], rho[name]) for name in RIVALS})
    med, strongest, step = (fmean(rho[name][seed] for seed in seeds) for name in ("med", rival, "step"))
    return (
        f" In {len(seeds)} runs on random pairs, the rank correlation with the test loss, without its sign, "
        f"is on average {med:.2f} for MED, {strongest:.2f} for {RIVALS[rival]} and {step:.2f} for the number "
        "of the step."
    )
