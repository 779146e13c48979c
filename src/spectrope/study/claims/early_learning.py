"""Claim 10, alternative: predictions of theory for early training, instead of the paper's argument."""

from collections.abc import Iterator

from spectrope.encodings import RoPE
from spectrope.lab import AnyExperiment, Experiment
from spectrope.spectral import effective_ranks, rope_kernel_eigenvalues
from spectrope.study.arms import ACCURACY, NAMES, Arms, planned
from spectrope.study.claim import Claim
from spectrope.study.claims.contraction import ContractionClaim
from spectrope.study.claims.extrapolation import CORRELATION, rank_correlations
from spectrope.study.claims.intrinsic_deposit import PARTICIPATION, WHY, WORDS, couplings, participation
from spectrope.study.predictions import AtLeast, AtMost, Within
from spectrope.study.quantities import Seen, difference, speed
from spectrope.study.rows import StudyRow
from spectrope.study.verdict import Part

CONTRACTED = 0.95  # Largest mean ratio of eigenvalues that counts as contraction.
UNCONTRACTED = 0.1  # Smallest share of heads of interest.
START, GROWTH = ("start",), ("head_growth",)
TABLES = {"rope": START + GROWTH, "additive": GROWTH, "rope/sgd/small": GROWTH, "additive/sgd/small": GROWTH}


class EarlyLearning(Claim, name="early-learning"):
    """What theory predicts of early training in place of the paper's argument."""

    number = 10
    title = "RoPE contracts the tangent kernel before training (P1)"
    statement = (
        "Instead of the paper's argument: RoPE contracts the tangent kernel (P1), not the curvature (P4); "
        "Task 1 is learned as fast as the kernel's modes over lags allow (P2); RoPE is slowest on Task 2 "
        "(P3); heads grow apart through factorisation, gradient descent and a small start, with or without "
        "multiplication (P5)."
    )
    source = "The digest of its theory, Sec. 3; not a statement of the authors"
    prediction = (
        "P1: mean over heads of λ_max(Θ) / λ_max(Θ without rotation) ≤ 0.95 before training; P2: speed on "
        "Task 1 and the rank of RoPE's kernel over lags have a rank correlation of at least 0.3 over bases; "
        "P3: speed(e) − speed(RoPE) ≥ 2 points on Task 2 for NoPE, MLA and relative; P4: such ratios of "
        "Gauss–Newton matrices are 1 or more in a tenth of the heads or more; P5: participation of heads in "
        "the growth of factors is smaller by 0.1 or more by SGD from a small start than by AdamW, under RoPE "
        "and under the additive control alike"
    )
    test = (
        "P1 and P4: heads of the untrained network, logits of the last tokens, the same weights with and "
        "without rotation. P2: effective rank (exponential of the entropy of eigenvalues) of the matrix "
        "cos((δ−δ′)θ), averaged over frequencies, over the lags of the task; bases as in claim 8. P3: over "
        "the scale's own epochs, 4 at `mini`, while Task 2 is being learned. P5: energy of what training has "
        "moved each head's factors, as in the next claim; averaged over layers. Student's t over seeds."
    )
    paper = "none: these predictions are ours"
    conditions = ("controlled",)
    ours = True
    unplanned = WHY

    def arms(self, condition: str, scale: str, seed: int) -> Arms:
        coupling_arms = couplings(condition, scale, seed)
        bases = ContractionClaim().arms(condition, scale, seed)
        task_2 = {
            name: planned("counting", name, scale=scale, condition=condition, seed=seed)
            for name in ("rope", "nope", "mla", "t5")
        }
        return {
            **{name: coupling_arms[name] for name in TABLES},
            **bases,
            **{f"counting/{name}": one for name, one in task_2.items()},
        }

    def measured(self, arm: str, experiment: AnyExperiment) -> tuple[str, ...]:
        return (*super().measured(arm, experiment), *TABLES.get(arm, ()))

    def parts(self, seen: Seen) -> Iterator[Part]:
        yield Part(
            quantity="P1: mean ratio of largest eigenvalues of Θ",
            prediction=AtMost(CONTRACTED, "ratio", null=1.0),
            values=seen.values("rope", tangent_ratio),
        )
        bases = [arm for arm in seen.arms if arm.isdecimal()]
        yield Part(
            quantity="P2: speed on Task 1 against the kernel's rank, over bases",
            prediction=AtLeast(CORRELATION, "rho"),
            values=rank_correlations(
                [seen.values(arm, kernel_rank) for arm in bases],
                [seen.values(arm, speed) for arm in bases],
                seen.complete(bases, kernel_rank, speed),
            ),
        )
        for name in ("nope", "mla", "t5"):
            yield Part(
                quantity=f"P3: {'MLA' if name == 'mla' else NAMES[name]} minus RoPE, speed on Task 2",
                prediction=AtLeast(ACCURACY),
                values=seen.minus(f"counting/{name}", "counting/rope", speed),
            )
        yield Part(
            quantity="P4: heads whose largest eigenvalue of Gauss–Newton rotation does not lower",
            prediction=AtLeast(UNCONTRACTED, "of heads", null=None),
            values=seen.values("rope", uncontracted),
        )
        yield from _growth(seen)


def tangent_ratio(row: StudyRow) -> float | None:
    """Mean over heads of the largest eigenvalue of Θ over that without rotation, before training."""
    ratios = _ratios(row, "tangent")
    return None if ratios is None else sum(ratios) / len(ratios)


def uncontracted(row: StudyRow) -> float | None:
    """Share of heads in which the same ratio of Gauss-Newton matrices is 1 or more."""
    ratios = _ratios(row, "newton")
    return None if ratios is None else sum(ratio >= 1 for ratio in ratios) / len(ratios)


def kernel_rank(row: StudyRow) -> float | None:
    r"""Effective rank of :math:`\frac1m\sum_t\cos((\delta-\delta')\theta_t)` over the lags of Task 1."""
    decoder = Experiment.of(row.experiment)
    if decoder is None or not isinstance(encoding := decoder.model.encoding, RoPE.Config):
        return None
    lags = decoder.model.n_labels - 1  # Label 0 is no distance.
    frequencies = encoding.schedule.frequencies(decoder.model.head_dim)
    return effective_ranks(rope_kernel_eigenvalues(frequencies, lags)).entropy.item()


def in_growth(row: StudyRow) -> float | None:
    """Participation of heads in what training has moved."""
    return participation(row, "head_growth")


def _ratios(row: StudyRow, kernel: str) -> list[float] | None:
    table = row.tables.get("start")
    if table is None:
        return None
    ratios = table[f"{kernel}_largest"] / table[f"{kernel}_plain_largest"]
    return None if ratios.has_nulls() else ratios.to_list()


def _growth(seen: Seen) -> Iterator[Part]:
    ratios = {arm: seen.values(arm, in_growth) for arm in TABLES}
    for name in ("rope", "additive"):
        yield Part(
            quantity=f"P5: AdamW minus SGD from a small start, {WORDS[name]}, participation in growth",
            prediction=AtLeast(PARTICIPATION, "ratio"),
            values=difference(ratios[name], ratios[f"{name}/sgd/small"]),
        )
    yield Part(
        quantity="P5: additive minus RoPE, SGD from a small start, participation in growth",
        prediction=Within(PARTICIPATION, "ratio"),
        values=difference(ratios["additive/sgd/small"], ratios["rope/sgd/small"]),
    )
