"""Figures of a claim: a forest of its parts, and its extra figure where it has one."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from spectrope.core import require_type
from spectrope.figures import Drawing, Panel, panels_spec
from spectrope.study.claim import Claim, chosen_claims
from spectrope.study.claims.tuned import tried_claims
from spectrope.study.conditions import THROWN
from spectrope.study.page.extras.base import EXTRAS
from spectrope.study.page.forest import WIDTH, forest
from spectrope.study.rows import StudyRows
from spectrope.study.study import Study
from spectrope.study.verdict import ClaimVerdict

FOREST = (
    "Points: seeds. Bars: intervals, of 95 % unless the table tells another level. Ticks: smallest effects "
    "of interest. Diamonds: the paper. Triangles: bounds, which the difference may exceed on that side. A "
    "name without marks: not measured, or fewer than two seeds."
)


@dataclass(frozen=True)
class ClaimFigure:
    """A figure of a claim.

    Args:
        drawing: The figure, named after the claim.
        caption: How to read it.
    """

    drawing: Drawing
    caption: str


def figures_of(
    study: Study, rows: StudyRows, claim: Claim, verdicts: Sequence[ClaimVerdict]
) -> Iterator[ClaimFigure]:
    """The figures of a claim whose verdicts are known; none without two seeds."""
    name = f"{claim.number}-{claim.kind}"
    if parts := forest(verdicts):
        yield _figure(name, FOREST, parts, WIDTH, len({panel.title for panel in parts}))
    if claim.kind in EXTRAS:
        extra = EXTRAS[claim.kind]
        seen = {v.condition: study.seen(claim, v.condition, rows) for v in verdicts}
        if panels := extra.panels(seen):
            yield _figure(f"{name}-more", extra.caption, panels, extra.width, extra.columns)


def claim_figures(
    claim: str | int,
    rows: StudyRows,
    *,
    scale: str = "mini",
    seeds: Sequence[int] = range(6),
    conditions: Sequence[str] = tuple(THROWN),
) -> list[ClaimFigure]:
    """The figures of a claim from the rows of a scale, as the replication page has them.

    Args:
        claim: Its number or name. A number that several claims have gives the figures of all of them, and a
            claim with tuned learning rates those of its tuned form too.
        rows: The rows of that scale, such as `stored_rows("mini")`.
        scale: Size of models and data.
        seeds: Seeds, counted from the first that the claim has not explored.
        conditions: Conditions under which the claim is tested.

    Returns:
        One or two figures for each claim that has two seeds; a notebook displays `figure.drawing`.

    Raises:
        UnknownNameError: If the claim, the scale or a condition is unknown.
        ConfigError: If the rows are something else, there are no seeds, or the claim is not tested under any
            of the conditions.
    """
    require_type(rows, StudyRows, "rows", 'rows of a study, such as stored_rows("mini")')
    claims = tried_claims(chosen_claims((str(claim),)), rows, scale)
    study = Study(tuple(claims), tuple(conditions), scale, tuple(seeds))
    return [
        figure
        for one in claims
        for figure in figures_of(
            study,
            rows,
            one,
            [v for (c, _), v in zip(study.cases(), study.verdicts(rows), strict=True) if c == one],
        )
    ]


def _figure(name: str, caption: str, panels: Sequence[Panel], width: int, columns: int) -> ClaimFigure:
    return ClaimFigure(Drawing(name, panels_spec(panels, width, columns, colours="shared")), caption)
